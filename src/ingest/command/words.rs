//! A piece of shell to the commands in it, word by word, each with its line. Nothing is run or expanded.

use std::iter::Peekable;
use std::str::Chars;

/// A word and the line it begins on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    pub text: String,
    pub line: u32,
    /// It holds something that only the shell knows (`$X`, `` `…` ``).
    pub expands: bool,
}

impl Word {
    /// A word at a line.
    #[must_use]
    pub fn new(text: impl Into<String>, line: u32) -> Self {
        Self { text: text.into(), line, expands: false }
    }
}

/// One simple command: assignments before it, then its words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Command {
    pub assignments: Vec<(String, String)>,
    pub words: Vec<Word>,
    /// Texts that stand in the script itself (`<<EOF`).
    pub here: Vec<Here>,
}

/// A text in a script, and the line on which it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Here {
    pub text: String,
    pub line: u32,
}

impl Command {
    /// The file that the command writes such a text into (`cat > FILE <<EOF`).
    #[must_use]
    pub fn writes(&self) -> Option<(&str, &Here)> {
        let at = self.words.iter().position(|word| matches!(word.text.as_str(), ">" | ">|"))?;
        Some((&self.words.get(at + 1)?.text, self.here.last()?))
    }
}

/// Words of a text, at most.
const MAX_WORDS: usize = 10_000;

/// Every command of a piece of shell. Quotes, continuation lines and comments are those of POSIX; what is not closed
/// ends with the text.
#[must_use]
pub fn commands(text: &str) -> Vec<Command> {
    let mut out = Vec::new();
    let mut command = Command::default();
    let mut line = 1_u32;
    let mut word: Option<Word> = None;
    let mut chars = text.chars().peekable();
    let mut total = 0_usize;
    let mut awaited: Vec<Delimiter> = Vec::new();
    while let Some(c) = chars.next() {
        let at = line;
        let push = |word: &mut Option<Word>, text: &str, expands: bool| {
            let w = word.get_or_insert_with(|| Word::new("", at));
            w.text.push_str(text);
            w.expands |= expands;
        };
        match c {
            '\\' => match chars.next() {
                Some('\n') => line = line.saturating_add(1),
                Some('\r') if chars.peek() == Some(&'\n') => {
                    chars.next();
                    line = line.saturating_add(1);
                }
                Some(other) => push(&mut word, other.encode_utf8(&mut [0; 4]), false),
                None => {}
            },
            '\'' => {
                push(&mut word, "", false);
                for q in chars.by_ref() {
                    match q {
                        '\'' => break,
                        '\n' => {
                            line = line.saturating_add(1);
                            push(&mut word, "\n", false);
                        }
                        other => push(&mut word, other.encode_utf8(&mut [0; 4]), false),
                    }
                }
            }
            '"' => {
                push(&mut word, "", false);
                while let Some(q) = chars.next() {
                    match q {
                        '"' => break,
                        '\\' => match chars.next() {
                            Some('\n') => line = line.saturating_add(1),
                            Some(e @ ('"' | '\\' | '$' | '`')) => {
                                push(&mut word, e.encode_utf8(&mut [0; 4]), false);
                            }
                            Some(other) => {
                                push(&mut word, "\\", false);
                                push(&mut word, other.encode_utf8(&mut [0; 4]), false);
                            }
                            None => {}
                        },
                        '\n' => {
                            line = line.saturating_add(1);
                            push(&mut word, "\n", false);
                        }
                        other => {
                            let expands = matches!(other, '$' | '`');
                            push(&mut word, other.encode_utf8(&mut [0; 4]), expands);
                        }
                    }
                }
            }
            '#' if word.is_none() => {
                while chars.peek().is_some_and(|c| *c != '\n') {
                    chars.next();
                }
            }
            '<' if chars.peek() == Some(&'<') => {
                end_word(&mut command, &mut word, &mut total);
                chars.next();
                awaited.extend(delimiter(&mut chars));
            }
            ' ' | '\t' | '\r' => end_word(&mut command, &mut word, &mut total),
            '\n' | ';' | '&' | '|' => {
                end_word(&mut command, &mut word, &mut total);
                if c == '\n' {
                    line = line.saturating_add(1);
                    for delimiter in awaited.drain(..) {
                        command.here.push(here(&mut chars, &delimiter, &mut line));
                    }
                }
                end_command(&mut out, &mut command);
            }
            other => push(&mut word, other.encode_utf8(&mut [0; 4]), matches!(other, '$' | '`')),
        }
        if total >= MAX_WORDS {
            break;
        }
    }
    end_word(&mut command, &mut word, &mut total);
    end_command(&mut out, &mut command);
    out
}

/// What ends a text in a script.
struct Delimiter {
    word: String,
    /// `<<-`: tabs in front of lines do not count.
    indented: bool,
}

/// The delimiter after `<<`; none for `<<<`, where a word follows that is no such text.
fn delimiter(chars: &mut Peekable<Chars<'_>>) -> Option<Delimiter> {
    if chars.peek() == Some(&'<') {
        chars.next();
        return None;
    }
    let indented = chars.next_if_eq(&'-').is_some();
    while chars.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
    let mut word = String::new();
    while let Some(c) = chars.next_if(|c| !c.is_whitespace() && !matches!(c, ';' | '&' | '|' | '>')) {
        if !matches!(c, '\'' | '"' | '\\') {
            word.push(c);
        }
    }
    (!word.is_empty()).then_some(Delimiter { word, indented })
}

/// The lines up to a delimiter, or to the end.
fn here(chars: &mut Peekable<Chars<'_>>, delimiter: &Delimiter, line: &mut u32) -> Here {
    let first = *line;
    let mut text = String::new();
    while chars.peek().is_some() {
        let mut one: String = std::iter::from_fn(|| chars.next_if(|c| *c != '\n')).collect();
        if chars.next().is_some() {
            *line = line.saturating_add(1);
        }
        if delimiter.indented {
            one = one.trim_start_matches('\t').to_owned();
        }
        if one.trim_end_matches('\r') == delimiter.word {
            break;
        }
        text.push_str(&one);
        text.push('\n');
    }
    Here { text, line: first }
}

fn end_word(command: &mut Command, word: &mut Option<Word>, total: &mut usize) {
    let Some(word) = word.take() else { return };
    *total = total.saturating_add(1);
    if command.words.is_empty()
        && let Some((name, value)) = word.text.split_once('=')
        && is_name(name)
    {
        command.assignments.push((name.to_owned(), value.to_owned()));
    } else {
        command.words.push(word);
    }
}

fn end_command(out: &mut Vec<Command>, command: &mut Command) {
    let done = std::mem::take(command);
    if !done.words.is_empty() || !done.assignments.is_empty() {
        out.push(done);
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<Vec<(String, u32)>> {
        commands(text).into_iter().map(|c| c.words.into_iter().map(|w| (w.text, w.line)).collect()).collect()
    }

    #[test]
    fn lines_survive_quotes_and_continuations() {
        let found = texts("# start\nA=1 vllm serve 'a b' \\\n  --x \"{\\\"k\\\": 1}\" # why\nnext; last");
        let word = |t: &str, l| (t.to_owned(), l);
        assert_eq!(
            found,
            [
                vec![
                    word("vllm", 2),
                    word("serve", 2),
                    word("a b", 2),
                    word("--x", 3),
                    word("{\"k\": 1}", 3)
                ],
                vec![word("next", 4)],
                vec![word("last", 4)]
            ]
        );
        assert_eq!(
            commands("A=1 B=x=y c")[0].assignments,
            [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "x=y".to_owned())]
        );
        assert!(commands("vllm serve $MODEL")[0].words[2].expands);
    }

    #[test]
    fn a_text_in_a_script_is_no_command() {
        let found = commands("cat > o.yaml <<'END'\nvllm serve x\n  a: 1\nEND\ntrtllm-serve m\n");
        assert_eq!(found.len(), 2);
        let (path, here) = found[0].writes().expect("a file");
        assert_eq!((path, here.text.as_str(), here.line), ("o.yaml", "vllm serve x\n  a: 1\n", 2));
        assert_eq!((found[1].words[0].text.as_str(), found[1].words[0].line), ("trtllm-serve", 5));
        for text in ["cat <<", "cat <<EOF", "cat <<<x", "cat <<A <<B\n1\nA\n2\nB\nls", "<<-\tX\n\tX"] {
            let _ = commands(text);
        }
    }

    #[test]
    fn broken_shell_ends_with_the_text() {
        for text in ["'", "\"", "\\", "a 'b", "a \"b\\", "&&&&", "", "\u{0}'\n"] {
            let _ = commands(text);
        }
    }
}
