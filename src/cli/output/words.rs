//! Figures and sentences for people.

use crate::planner::plan::Layout;
use crate::planner::units::{Bytes, grouped};

/// Columns of a line.
pub(super) const WIDTH: usize = 80;

/// Tokens or other counts: every digit below a million, three digits above.
pub(super) fn count(n: u64) -> String {
    match n {
        0..1_000_000 => grouped(n),
        1_000_000..1_000_000_000 => scaled(n, 1_000_000, "M"),
        1_000_000_000..1_000_000_000_000 => scaled(n, 1_000_000_000, "B"),
        _ => scaled(n, 1_000_000_000_000, "T"),
    }
}

/// Three significant digits of `n / unit`, rounded down so that no capacity is overstated.
fn scaled(n: u64, unit: u64, letter: &str) -> String {
    let (whole, hundredths) = (n / unit, n % unit / (unit / 100));
    match whole {
        0..10 => format!("{whole}.{hundredths:02}{letter}"),
        10..100 => format!("{whole}.{}{letter}", hundredths / 10),
        _ => format!("{}{letter}", grouped(whole)),
    }
}

/// A context length as people say it: 32k, 128k, 1M, or the number itself.
pub(super) fn context(tokens: u64) -> String {
    match tokens {
        t if t >= 1_048_576 && t.is_multiple_of(1_048_576) => format!("{}M", t / 1_048_576),
        t if t >= 1024 && t.is_multiple_of(1024) => format!("{}k", t / 1024),
        t => grouped(t),
    }
}

/// Decimal gigabytes, the unit of the formula in every issue and datasheet.
pub(super) fn gigabytes(bytes: u64) -> String {
    let tenths = bytes / 100_000_000;
    if tenths >= 10 {
        format!("{}.{} GB", grouped(tenths / 10), tenths % 10)
    } else {
        format!("{} MB", bytes / 1_000_000)
    }
}

/// Binary gigabytes, the unit that engines print memory in.
pub(super) fn gibibytes(bytes: u64) -> String {
    format!("{:.2} GiB", Bytes(bytes).gib())
}

/// A time in ms: three digits that mean something.
pub(super) fn milliseconds(ms: f64) -> String {
    match ms {
        ms if !ms.is_finite() => "-".to_owned(),
        ms if ms < 10.0 => format!("{ms:.2}"),
        ms if ms < 100.0 => format!("{ms:.1}"),
        ms if ms < 100_000.0 => format!("{ms:.0}"),
        ms => format!("{:.0}s", ms / 1000.0),
    }
}

/// A factor, with no more decimals than it has.
pub(super) fn factor(factor: f64) -> String {
    let text = format!("{factor:.2}");
    format!("x{}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A layout as a sentence names it: `TP=8 × PP=2`, with only the sizes that are not 1.
pub(super) fn layout(layout: &Layout) -> String {
    let mut parts = vec![format!("TP={}", layout.tp)];
    for (name, size) in
        [("PP", layout.pp), ("attention DP", layout.attention_dp), ("EP", layout.ep), ("DCP", layout.dcp)]
    {
        if size > 1 {
            parts.push(format!("{name}={size}"));
        }
    }
    let replica = parts.join(" × ");
    if layout.dp > 1 { format!("{} replicas of {replica}", layout.dp) } else { replica }
}

/// `text` broken at spaces to lines of [`WIDTH`], each but the first behind `indent`.
pub(super) fn wrapped(first: &str, text: &str, indent: &str) -> String {
    let mut lines = Vec::new();
    let mut line = first.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(std::mem::replace(&mut line, indent.to_owned()));
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    lines.push(line);
    lines.join("\n")
}

/// A command over several lines, broken before its flags, so that it can be pasted as it stands.
pub(super) fn command(line: &str) -> String {
    if line.starts_with('#') {
        return wrapped("", line, "#   ");
    }
    let mut lines = Vec::new();
    let mut current = String::new();
    for (i, part) in line.split(" --").enumerate() {
        let part = if i == 0 { part.to_owned() } else { format!("--{part}") };
        if !current.is_empty() && current.chars().count() + part.chars().count() + 3 > WIDTH {
            lines.push(std::mem::replace(&mut current, "  ".to_owned()));
        }
        if !current.trim().is_empty() {
            current.push(' ');
        }
        current.push_str(&part);
    }
    lines.push(current);
    lines.join(" \\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short_and_never_overstated() {
        for (n, text) in [
            (999_999, "999,999"),
            (3_251_999, "3.25M"),
            (29_700_000, "29.7M"),
            (405_853_388_800, "405B"),
            (u64::MAX, "18,446,744T"),
        ] {
            assert_eq!(count(n), text);
        }
        assert_eq!(
            [context(32_768), context(131_072), context(1_048_576), context(2_000)],
            ["32k", "128k", "1M", "2,000"]
        );
        assert_eq!([gigabytes(141_107_412_992), gigabytes(52_428_800)], ["141.1 GB", "52 MB"]);
        assert_eq!([factor(1.0), factor(2.28), factor(1.5)], ["x1", "x2.28", "x1.5"]);
        assert_eq!([milliseconds(4.1), milliseconds(21.34), milliseconds(1152.2)], ["4.10", "21.3", "1152"]);
    }

    #[test]
    fn long_lines_are_broken_within_the_width() {
        let text = wrapped("- ", &"word ".repeat(60), "  ");
        assert!(text.lines().all(|l| l.chars().count() <= WIDTH));
        assert!(text.lines().skip(1).all(|l| l.starts_with("  word")));
    }

    #[test]
    fn a_broken_command_is_the_same_command() {
        let line = "vllm serve org/model --tensor-parallel-size 8 --max-model-len 32768 --gpu-memory-utilization 0.92 --kv-cache-dtype auto --headless";
        let broken = command(line);
        assert!(broken.lines().all(|l| l.chars().count() <= WIDTH), "{broken}");
        let joined = broken.replace(" \\\n", " ").split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(joined, line);
    }
}
