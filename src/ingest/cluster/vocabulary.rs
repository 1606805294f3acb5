//! The plain words of cluster texts: units, links, joins, number words, question words.

use super::words::Word;
use crate::catalogue::hardware::Form;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Node,
    /// "nodes": what stands before it counts them, where "an 8xH100 node" is one.
    Nodes,
    Tray,
    Rack,
    Superchip,
    Gpu,
    /// An NVLink domain or island.
    Domain,
    /// A network port.
    Port,
}

/// A family of links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fabric {
    NvLink,
    Xgmi,
    InfiniBand,
    Roce,
    Ethernet,
    Efa,
}

/// The word at the start of `text` and what follows it, when the vocabulary has it.
pub(super) fn plain_word<'c>(text: &str) -> Option<(Word<'c>, &str)> {
    // Chinese counters stand without blanks.
    let first = text.chars().next()?;
    let counter = match first {
        '卡' | '张' | '块' | '片' | '路' => Some(Word::Unit(Unit::Gpu)),
        '台' | '机' => Some(Word::Unit(Unit::Nodes)),
        '单' => Some(Word::Number(1)),
        '双' => Some(Word::Number(2)),
        '个' | '的' | '共' => Some(Word::Filler),
        '每' => Some(Word::Each),
        '和' => Some(Word::And),
        _ => None,
    };
    if let Some(word) = counter {
        return Some((word, text.get(first.len_utf8()..)?));
    }
    if let Some((n, behind)) = chinese_number(text) {
        return Some((Word::Number(n), behind));
    }
    let counted = [("节点", Unit::Nodes), ("服务器", Unit::Nodes), ("显卡", Unit::Gpu)];
    if let Some((unit, behind)) =
        counted.iter().find_map(|(word, unit)| text.strip_prefix(word).map(|behind| (*unit, behind)))
    {
        return Some((Word::Unit(unit), behind));
    }
    let end = text.char_indices().find(|(_, c)| !c.is_ascii_alphabetic()).map_or(text.len(), |(i, _)| i);
    let letters = text.get(..end)?;
    let mut behind = text.get(end..)?;
    let lower = letters.to_ascii_lowercase();
    let word = match lower.as_str() {
        // HBM3, HBM3e, SXM5, EFAv2: the generation belongs to the word.
        "hbm" | "sxm" | "gddr" => {
            behind = behind.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
            if lower == "sxm" { Word::Form(Form::Sxm) } else { Word::Filler }
        }
        // "RoCE v2"
        "roce" => {
            behind = [" v2", "v2", "-v2"].iter().find_map(|v| behind.strip_prefix(v)).unwrap_or(behind);
            Word::Fabric(Fabric::Roce)
        }
        // PCI-E
        "pci" => {
            let rest = behind.strip_prefix('-').unwrap_or(behind);
            behind = rest.strip_prefix(['e', 'E']).filter(|r| !r.starts_with(char::is_alphanumeric))?;
            Word::Form(Form::Pcie)
        }
        // "NVLink intra-node, IB inter-node"
        "intra" | "inter" => {
            behind = ["-node", " node"].iter().find_map(|n| behind.strip_prefix(n)).unwrap_or(behind);
            behind = behind.strip_prefix('s').unwrap_or(behind);
            if lower == "intra" { Word::Inside } else { Word::Between }
        }
        "host" | "system" | "main" if begins_memory(behind) => {
            behind = after_memory(behind);
            Word::HostMemory
        }
        // "a pair of H100s", but "bridged pair"
        "pair" if then_word(behind, "of").is_some() => Word::Number(2),
        "single" => Word::Number(1),
        _ => known_word(&lower)?,
    };
    // A digit joined to a word makes another word, unless the word is a unit ("gpu8" is none).
    let joined = behind.starts_with(|c: char| c.is_ascii_digit() || c == '_');
    (!joined || matches!(word, Word::Filler | Word::Form(_))).then_some((word, behind))
}

/// 两, 八, 十六, 三十二: up to 99.
fn chinese_number(text: &str) -> Option<(u64, &str)> {
    let digit = |c: char| {
        let place = "一二三四五六七八九".chars().zip(1..).find(|(d, _)| *d == c);
        place.map(|(_, n)| n).or((c == '两').then_some(2_u64))
    };
    let first = text.chars().next()?;
    let mut behind = text;
    let mut tens = 1;
    if first != '十' {
        let n = digit(first)?;
        behind = text.get(first.len_utf8()..)?;
        if !behind.starts_with('十') {
            return Some((n, behind));
        }
        tens = n;
    }
    behind = behind.strip_prefix('十')?;
    match behind.chars().next().and_then(digit) {
        Some(ones) => Some((tens * 10 + ones, behind.get('一'.len_utf8()..)?)),
        None => Some((tens * 10, behind)),
    }
}

fn begins_memory(rest: &str) -> bool {
    let rest = rest.trim_start();
    ["memory", "ram"].iter().any(|w| rest.get(..w.len()).is_some_and(|r| r.eq_ignore_ascii_case(w)))
}

fn after_memory(rest: &str) -> &str {
    let rest = rest.trim_start();
    rest.trim_start_matches(|c: char| c.is_ascii_alphabetic())
}

fn known_word<'c>(lower: &str) -> Option<Word<'c>> {
    Some(match lower {
        "node" | "server" | "machine" | "host" | "box" | "instance" | "vm" | "system" | "chassis"
        | "baseboard" | "worker" => Word::Unit(Unit::Node),
        "nodes" | "servers" | "machines" | "hosts" | "boxes" | "instances" | "vms" | "systems"
        | "baseboards" | "workers" => Word::Unit(Unit::Nodes),
        "tray" | "trays" | "blade" | "blades" => Word::Unit(Unit::Tray),
        "rack" | "racks" | "cabinet" | "cabinets" => Word::Unit(Unit::Rack),
        "superchip" | "superchips" => Word::Unit(Unit::Superchip),
        "gpu" | "gpus" | "card" | "cards" | "accelerator" | "accelerators" | "chip" | "chips" | "device"
        | "devices" | "way" => Word::Unit(Unit::Gpu),
        "domain" | "domains" | "island" | "islands" => Word::Unit(Unit::Domain),
        "port" | "ports" | "nic" | "nics" | "hca" | "hcas" => Word::Unit(Unit::Port),
        "x" | "times" => Word::Times,
        "plus" => Word::Plus,
        "and" => Word::And,
        "a" | "an" => Word::Article,
        "the" => Word::The,
        "of" => Word::Of,
        "each" | "per" | "every" | "apiece" => Word::Each,
        "on" | "across" | "over" | "in" | "using" | "spread" => Word::Over,
        "half" => Word::Half,
        "third" | "thirds" => Word::Share(3),
        "quarter" | "quarters" => Word::Share(4),
        "eighth" | "eighths" => Word::Share(8),
        "some" | "several" | "lots" | "plenty" | "any" | "many" | "few" | "multiple" | "bunch"
        | "cluster" | "clusters" => Word::Vague,
        "no" | "without" | "not" => Word::No,
        "bridge" | "bridges" | "bridged" => Word::Bridge,
        "between" | "among" | "outside" | "internode" => Word::Between,
        "inside" | "within" | "internally" | "intranode" => Word::Inside,
        "minus" | "negative" => Word::Negative,
        "dgx" | "hgx" => Word::Dgx,
        "superpod" | "pod" | "basepod" => Word::SuperPod,
        "su" | "sus" => Word::ScalableUnit,
        "ram" | "dram" => Word::HostMemory,
        "pcie" => Word::Form(Form::Pcie),
        "nvl" => Word::Form(Form::Nvl),
        "oam" => Word::Form(Form::Oam),
        "nvlink" | "nvlinks" | "nvswitch" | "nvlinked" => Word::Fabric(Fabric::NvLink),
        "xgmi" => Word::Fabric(Fabric::Xgmi),
        "infiniband" | "ib" => Word::Fabric(Fabric::InfiniBand),
        "rdma" => Word::Fabric(Fabric::Roce),
        "ethernet" | "eth" | "tcp" => Word::Fabric(Fabric::Ethernet),
        "efa" => Word::Fabric(Fabric::Efa),
        "nvidia" | "amd" | "intel" | "google" | "aws" | "gcp" | "azure" | "geforce" | "tesla"
        | "instinct" | "setup" | "with" | "have" | "has" | "got" | "my" | "our" | "total" | "to" | "at"
        | "is" | "are" | "edition" | "network" | "networking" | "fabric" | "interconnect"
        | "interconnected" | "link" | "links" | "linked" | "connected" | "joined" | "by" | "via" | "them"
        | "vram" | "memory" | "mem" | "mig" | "slice" | "slices" | "type" | "model" | "form" | "factor"
        | "full" | "cloud" | "compute" | "module" | "modules" | "only" | "just" | "about" | "please"
        | "count" | "out" | "ive" | "weve" | "worth" | "srun" | "sbatch" | "salloc" | "so" | "then"
        | "graphics" | "topology" | "mesh" | "switch" | "pair" | "pairs" => Word::Filler,
        "what" | "which" | "can" | "could" | "would" | "will" | "how" | "does" | "do" | "we" | "i"
        | "you" | "it" | "fit" | "fits" | "run" | "runs" | "serve" | "deploy" | "hold" | "need" | "want"
        | "should" | "best" | "plan" | "for" | "this" | "that" | "if" | "me" | "show" | "give" | "layout"
        | "use" => Word::Question,
        _ => return None,
    })
}

/// How the words of a load, a layout or a price take their number, which is none of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadWord {
    /// "64 users"
    Behind,
    /// "tp 8"
    Before,
    /// "128k context", "context 128k"
    Either,
}

const LOADS: [(LoadWord, &[&str]); 3] = [
    (
        LoadWord::Behind,
        &[
            "token",
            "tokens",
            "tok",
            "toks",
            "user",
            "users",
            "people",
            "developers",
            "customers",
            "seat",
            "seats",
            "agent",
            "agents",
            "session",
            "sessions",
            "chat",
            "chats",
            "request",
            "requests",
            "req",
            "reqs",
            "query",
            "queries",
            "stream",
            "streams",
            "qps",
            "rps",
            "tps",
            "ms",
            "millisecond",
            "milliseconds",
            "second",
            "seconds",
            "s",
            "bit",
            "percent",
            "usd",
        ],
    ),
    (
        LoadWord::Before,
        &[
            "concurrency",
            "batch",
            "bs",
            "isl",
            "osl",
            "tp",
            "pp",
            "dp",
            "ep",
            "dcp",
            "adp",
            "ttft",
            "tpot",
            "itl",
        ],
    ),
    (
        LoadWord::Either,
        &[
            "context",
            "contexts",
            "ctx",
            "ctxlen",
            "seqlen",
            "length",
            "window",
            "prompt",
            "prompts",
            "input",
            "output",
            "concurrent",
            "parallel",
            "simultaneous",
            "sequence",
            "sequences",
            "seq",
            "seqs",
        ],
    ),
];

/// A word of a load at the start of `text`, and what follows it.
pub(super) fn load_word(text: &str) -> Option<(LoadWord, &str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (word, behind) = text.split_at_checked(end)?;
    if behind.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let known = |words: &[&str]| words.iter().any(|load| word.eq_ignore_ascii_case(load));
    LOADS.iter().find(|(_, words)| known(words)).map(|(kind, _)| (*kind, word, behind))
}

const SCALES: [(&str, u64); 5] =
    [("billion", 1_000_000_000), ("million", 1_000_000), ("thousand", 1000), ("hundred", 100), ("dozen", 12)];

/// The scale behind a number in figures: "1 million", "2 dozen".
pub(super) fn scale_word(text: &str) -> Option<(f64, &str)> {
    SCALES.iter().find_map(|(word, scale)| Some((*scale as f64, then_word(text, word)?)))
}

const SMALL: [(&str, u64); 27] = [
    ("zero", 0),
    ("one", 1),
    ("two", 2),
    ("three", 3),
    ("four", 4),
    ("five", 5),
    ("six", 6),
    ("seven", 7),
    ("eight", 8),
    ("nine", 9),
    ("ten", 10),
    ("eleven", 11),
    ("twelve", 12),
    ("thirteen", 13),
    ("fourteen", 14),
    ("fifteen", 15),
    ("sixteen", 16),
    ("seventeen", 17),
    ("eighteen", 18),
    ("nineteen", 19),
    ("dual", 2),
    ("double", 2),
    ("triple", 3),
    ("couple", 2),
    ("quad", 4),
    ("octo", 8),
    ("dozen", 12),
];

const TENS: [(&str, u64); 8] = [
    ("twenty", 20),
    ("thirty", 30),
    ("forty", 40),
    ("fifty", 50),
    ("sixty", 60),
    ("seventy", 70),
    ("eighty", 80),
    ("ninety", 90),
];

/// A number in letters at the start of `text`, up to some thousands: "thirty-two", "a hundred" (with the article
/// read before), "two hundred fifty six". "a couple of" is 2.
pub(super) fn number_word(text: &str) -> Option<(u64, &str)> {
    let (mut total, mut behind) = below_hundred(text)?;
    for (scale_word, scale) in SCALES {
        if let Some(rest) = then_word(behind, scale_word) {
            total = total.max(1).saturating_mul(scale);
            behind = rest;
            let more = behind.trim_start();
            let more = then_word(more, "and").map_or(more, str::trim_start);
            if let Some((n, rest)) = below_hundred(more) {
                total = total.saturating_add(n);
                behind = rest;
            }
        }
    }
    Some((total, behind))
}

fn below_hundred(text: &str) -> Option<(u64, &str)> {
    if let Some(rest) = then_word(text, "hundred") {
        return Some((100, rest));
    }
    if let Some(rest) = then_word(text, "thousand") {
        return Some((1000, rest));
    }
    for (word, n) in TENS {
        let Some(rest) = strip_word_start(text, word) else { continue };
        let tail = rest.strip_prefix(['-', ' ']).unwrap_or(rest);
        let ones = SMALL.iter().filter(|(_, n)| (1..10).contains(n));
        for (one, m) in ones {
            if let Some(behind) = then_word(tail, one) {
                return Some((n + m, behind));
            }
        }
        return (!rest.starts_with(|c: char| c.is_ascii_alphanumeric())).then_some((n, rest));
    }
    SMALL.iter().find_map(|(word, n)| then_word(text, word).map(|rest| (*n, rest)))
}

fn strip_word_start<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    text.get(..word.len()).filter(|head| head.eq_ignore_ascii_case(word))?;
    text.get(word.len()..)
}

/// `text` behind `word`, when a word ends there.
fn then_word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let text = text.trim_start();
    let behind = strip_word_start(text, word)?;
    (!behind.starts_with(|c: char| c.is_ascii_alphanumeric())).then_some(behind)
}
