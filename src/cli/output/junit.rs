//! The answer as a JUnit report: one case for "fits", one for each assertion.

use std::fmt::Write as _;

use super::Answered;

pub(super) fn text(answered: &Answered<'_>) -> String {
    let plan = answered.plan;
    let mut cases = vec![("fits".to_owned(), plan.feasible, plan.answer.clone())];
    cases.extend(answered.assertions.iter().map(|a| (a.text.clone(), a.holds, a.found.clone())));
    let failures = cases.iter().filter(|(_, holds, _)| !holds).count();
    let suite = escaped(&format!("{} on {}", plan.model.id, plan.cluster.text));
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(out, "<testsuites tests=\"{}\" failures=\"{failures}\">", cases.len());
    let _ = writeln!(out, "  <testsuite name=\"{suite}\" tests=\"{}\" failures=\"{failures}\">", cases.len());
    for (name, holds, found) in &cases {
        let _ = write!(out, "    <testcase classname=\"shardwise.plan\" name=\"{}\"", escaped(name));
        if *holds {
            out.push_str("/>\n");
        } else {
            let _ = writeln!(out, ">\n      <failure message=\"{}\"/>\n    </testcase>", escaped(found));
        }
    }
    let _ = writeln!(out, "    <system-out>{}</system-out>", escaped(&plan.answer));
    out.push_str("  </testsuite>\n</testsuites>\n");
    out
}

/// Text for XML 1.0: markup escaped, and the control characters that XML cannot hold left out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escaped("kv>=1 & \"x\" <y>\u{0}\n"), "kv&gt;=1 &amp; &quot;x&quot; &lt;y&gt; ");
    }
}
