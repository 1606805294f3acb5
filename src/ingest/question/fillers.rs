//! Words that carry no meaning of their own in a question.

const FILLERS: &str = "a an the i we my our me it is are be do does did can could will would should shall have has had get got \
    on in at for to of with and or per each by from as if then than that this these those there here please pls hi hello hey \
    run runs running serve serving serves host hosting deploy deploying use using need needed needs want like give tell show \
    find plan size sizing layout layouts best good tp pp gpu gpus card cards node nodes machine model models llm llms context \
    ctx tokens token length long window what which how many much when where why who you your us fit fits fitting work works \
    enough possible concurrent concurrency parallel simultaneous simultaneously users user requests request sequences seqs kv \
    cache ms s sec seconds second under below most least within latency throughput engine memory vram inside into across over \
    between so just only all any some about up one go going let lets time output input inference prompt prompts make makes \
    sense take takes hold holds capacity max maximum minimum min number count x vs versus people seats still more less weights \
    precision quantized quantised handle handles support supports parameters params whats i'm im not we're were way ways \
    longest largest biggest < > ≤ ≥ - & + =";

/// Whether a word in lower case is one of them.
pub(super) fn is_filler(word: &str) -> bool {
    FILLERS.split_ascii_whitespace().any(|filler| filler == word)
}
