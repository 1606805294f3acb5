//! One plain spelling for what keyboards, chats and web pages make of a text.

/// Slack markup, HTML entities, typographic characters and full-width forms to plain ASCII where one exists.
/// Letters keep their case: product names may need it for messages.
#[must_use]
pub fn clean(text: &str) -> String {
    let text = without_markup(&entities(text));
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{a0}' | '\u{202f}' | '\u{2007}' | '\u{2009}' | '\u{3000}' | '\t' | '\r' => out.push(' '),
            // a line is a group of its own, where it names a product
            '\n' => out.push_str(" ; "),
            // invisible characters, and quotes of every kind
            '\u{200b}'..='\u{200f}'
            | '\u{feff}'
            | '\u{2060}'
            | '\u{ad}'
            | '\u{201c}'
            | '\u{201d}'
            | '\u{2018}'
            | '\u{2019}'
            | '"'
            | '\''
            | '`'
            | '\u{ab}'
            | '\u{bb}' => {}
            '\u{2010}'..='\u{2015}' | '\u{2212}' => out.push('-'),
            '\u{d7}' | '\u{2715}' | '\u{2716}' | '\u{22c5}' => out.push('x'),
            // full-width forms of ASCII
            '\u{ff01}'..='\u{ff5e}' => {
                out.push(char::from_u32(u32::from(c).saturating_sub(0xfee0)).unwrap_or(c));
            }
            '\u{3001}' | '\u{3002}' => out.push(','),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    without_address(out.trim()).trim_end_matches(['?', '!', '.', ' ']).to_owned()
}

fn entities(text: &str) -> String {
    const NAMED: [(&str, &str); 9] = [
        ("&nbsp;", " "),
        ("&#160;", " "),
        ("&times;", "x"),
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", ""),
        ("&#39;", ""),
        ("&#124;", "|"),
        ("&amp;", "&"),
    ];
    if !text.contains('&') {
        return text.to_owned();
    }
    NAMED.iter().fold(text.to_owned(), |text, (entity, plain)| text.replace(entity, plain))
}

/// `<@U123>` and `<#C1|general>` go, `<https://x|16 H100s>` leaves its label, `<https://x>` goes.
fn without_markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        out.push_str(before);
        // "ttft < 1 s, tpot > 2": nothing that a chat or a page wrote
        let marked = after.split_once('>').filter(|_| !after.starts_with([' ', '=']) && !is_number(after));
        let Some((inside, behind)) = marked else {
            out.push('<');
            rest = after;
            continue;
        };
        if !inside.starts_with(['@', '#', '!'])
            && let Some((_, label)) = inside.split_once('|')
        {
            out.push_str(label);
        }
        out.push(' ');
        rest = behind;
    }
    out.push_str(rest);
    out
}

fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

/// The text after a leading "@planner" or "/shardwise".
fn without_address(text: &str) -> &str {
    let mut text = text;
    while text.starts_with('@') || text.starts_with('/') {
        text = text.split_once(' ').map_or("", |(_, rest)| rest.trim_start());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn chats_and_pages_are_undone() {
        for (text, plain) in [
            ("<https://x&#124;16 H100s>", "16 H100s"),
            ("<https://x|16 H100s>", "16 H100s"),
            ("<@U012AB> 16 H100s", "16 H100s"),
            ("ttft < 1 s, tpot > 2", "ttft < 1 s, tpot > 2"),
            ("tpot<40ms, ttft>2", "tpot<40ms, ttft>2"),
            ("@planner 16 H100s?", "16 H100s"),
            ("16\u{a0}H100s", "16 H100s"),
            ("16&nbsp;H100s", "16 H100s"),
            ("\u{201c}16\u{201d} H100s", "16 H100s"),
            ("8\u{d7}H100", "8xH100"),
            ("\u{ff11}\u{ff16} \u{ff28}100", "16 H100"),
            ("a < b", "a < b"),
        ] {
            assert_eq!(clean(text), plain, "{text}");
        }
    }
}
