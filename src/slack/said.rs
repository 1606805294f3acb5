//! What a text to the bot asks for.

/// What was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Help,
    /// Which GPUs are usual here?
    ShowUsual,
    /// These GPUs are usual here.
    SetUsual(String),
    ForgetUsual,
    /// A question in plain words; `share` shows the answer to the whole channel.
    Question {
        text: String,
        share: bool,
    },
}

/// Words that stand first and are no question, for "did you mean".
pub const WORDS: [&str; 3] = ["help", "default", "share"];

impl Said {
    /// Read a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let words: Vec<&str> = text.split_whitespace().collect();
        let is = |word: Option<&&str>, wanted: &str| word.is_some_and(|w| w.eq_ignore_ascii_case(wanted));
        match words.as_slice() {
            [] => Self::Help,
            [one] if is(Some(one), "help") || *one == "?" => Self::Help,
            [first, rest @ ..] if is(Some(first), "default") => match rest {
                [] => Self::ShowUsual,
                [one] if ["none", "clear", "off", "reset"].iter().any(|word| is(Some(one), word)) => {
                    Self::ForgetUsual
                }
                rest => Self::SetUsual(rest.join(" ")),
            },
            [first, rest @ ..] if is(Some(first), "share") => {
                if rest.is_empty() {
                    Self::Help
                } else {
                    Self::Question { text: rest.join(" "), share: true }
                }
            }
            [rest @ .., last] if is(Some(last), "share") => {
                Self::Question { text: rest.join(" "), share: true }
            }
            words => Self::Question { text: words.join(" "), share: false },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Said;

    #[test]
    fn texts_say_what_they_ask_for() {
        let question = |text: &str, share| Said::Question { text: text.to_owned(), share };
        for (text, said) in [
            ("", Said::Help),
            ("  HELP ", Said::Help),
            ("?", Said::Help),
            ("share", Said::Help),
            ("default", Said::ShowUsual),
            ("default 16  H100s", Said::SetUsual("16 H100s".to_owned())),
            ("Default none", Said::ForgetUsual),
            ("what fits on 8 L4", question("what fits on 8 L4", false)),
            ("share what fits on 8 L4", question("what fits on 8 L4", true)),
            ("what fits on 8 L4 Share", question("what fits on 8 L4", true)),
            ("help me with 8 L4", question("help me with 8 L4", false)),
        ] {
            assert_eq!(Said::of(text), said, "{text}");
        }
    }
}
