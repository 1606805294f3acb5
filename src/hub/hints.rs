//! When to come back: what the hub says in its headers.
//!
//! `Retry-After` (RFC 9110 §10.2.3): seconds or a date. `RateLimit` (draft-ietf-httpapi-ratelimit-headers):
//! a list of `"name";r=<remaining>;t=<seconds to reset>`; the hub sends it with a 429.

use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

/// How long the hub asks to wait, when it says so.
#[must_use]
pub fn wait_of(headers: &HeaderMap, now: OffsetDateTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
    let retry_after = text(RETRY_AFTER.as_str()).and_then(|t| retry_after(t, now));
    let rate_limit = text("ratelimit").and_then(reset_of_the_exhausted);
    retry_after.max(rate_limit)
}

fn retry_after(text: &str, now: OffsetDateTime) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let at = OffsetDateTime::parse(text, &Rfc2822).ok()?;
    Some(Duration::try_from(at - now).unwrap_or(Duration::ZERO))
}

/// The longest `t` among the policies that have nothing left; among all, where none says so.
fn reset_of_the_exhausted(text: &str) -> Option<Duration> {
    let policies: Vec<(Option<u64>, u64)> = text
        .split(',')
        .filter_map(|policy| {
            let value = |key: &str| {
                policy.split(';').find_map(|p| p.trim().strip_prefix(key)?.strip_prefix('=')?.parse().ok())
            };
            Some((value("r"), value("t")?))
        })
        .collect();
    let exhausted = policies.iter().filter(|(left, _)| *left == Some(0)).map(|(_, t)| *t).max();
    exhausted.or_else(|| policies.iter().map(|(_, t)| *t).max()).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;

    #[test]
    fn hints_in_every_form_are_read() {
        let now = OffsetDateTime::UNIX_EPOCH;
        for (name, value, seconds) in [
            ("retry-after", "7", Some(7)),
            ("retry-after", "Thu, 01 Jan 1970 00:01:00 GMT", Some(60)),
            ("retry-after", "Wed, 31 Dec 1969 23:00:00 GMT", Some(0)),
            ("retry-after", "soon", None),
            ("retry-after", "-3", None),
            ("retry-after", "1e99", None),
            ("ratelimit", "\"resolvers\";r=0;t=12", Some(12)),
            ("ratelimit", "\"api\";r=5;t=300, \"resolvers\";r=0;t=12", Some(12)),
            ("ratelimit", "\"api\"; r=5; t=30", Some(30)),
            ("ratelimit", "nonsense", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            assert_eq!(wait_of(&headers, now), seconds.map(Duration::from_secs), "{name}: {value}");
        }
    }
}
