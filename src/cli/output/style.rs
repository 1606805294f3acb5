//! Colour, only where a person looks.

use std::io::IsTerminal;

/// Whether to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    colour: bool,
}

impl Style {
    /// No colour at all.
    pub const PLAIN: Self = Self { colour: false };

    /// Colour on a terminal, unless `no_color` has any value (<https://no-color.org>).
    #[must_use]
    pub fn for_stdout(no_color: Option<&str>) -> Self {
        Self { colour: std::io::stdout().is_terminal() && no_color.is_none_or(str::is_empty) }
    }

    pub(super) fn bold(self, text: &str) -> String {
        self.wrapped("1", text)
    }

    pub(super) fn good(self, text: &str) -> String {
        self.wrapped("32", text)
    }

    pub(super) fn bad(self, text: &str) -> String {
        self.wrapped("31", text)
    }

    pub(super) fn warning(self, text: &str) -> String {
        self.wrapped("33", text)
    }

    pub(super) fn faint(self, text: &str) -> String {
        self.wrapped("2", text)
    }

    fn wrapped(self, code: &str, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        // each line on its own, so that cut or paged output never stays coloured
        text.lines().map(|line| format!("\u{1b}[{code}m{line}\u{1b}[0m")).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::Style;

    #[test]
    fn plain_adds_nothing_and_colour_ends_on_each_line() {
        assert_eq!(Style::PLAIN.bold("a\nb"), "a\nb");
        assert_eq!(Style { colour: true }.bold("a\nb"), "\u{1b}[1ma\u{1b}[0m\n\u{1b}[1mb\u{1b}[0m");
    }
}
