//! Whether a request comes from Slack: its signature, scheme v0.
//!
//! `v0=` and the HMAC-SHA256, under the app's signing secret, of `v0:` + the timestamp header + `:` + the raw body.
//! Source: Slack's documentation, "Verifying requests from Slack".

use std::sync::{Mutex, PoisonError};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use thiserror::Error;

use super::seen::Seen;
use crate::config::Secret;

/// Seconds that a request may be old, or ahead of our clock.
pub const WINDOW_S: u64 = 300;
/// Signatures that are remembered: only signed requests get in, so nobody else can push them out.
const MOST_SEEN: usize = 65_536;

/// Why a request is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Unsigned {
    #[error("the headers X-Slack-Request-Timestamp and X-Slack-Signature are missing")]
    Missing,
    #[error("the timestamp or the signature is not of Slack's form")]
    Malformed,
    #[error("the request is more than five minutes old, or ahead of time")]
    Old,
    #[error("the signature is not that of this body")]
    Wrong,
    #[error("the request came before")]
    Replayed,
}

/// Checks signatures under one secret or, while they are rotated, several.
pub struct Verifier {
    secrets: Vec<Secret>,
    seen: Mutex<Seen<Vec<u8>>>,
}

impl Verifier {
    /// A verifier that takes requests signed with any of these.
    #[must_use]
    pub const fn of(secrets: Vec<Secret>) -> Self {
        Self { secrets, seen: Mutex::new(Seen::of(MOST_SEEN)) }
    }

    /// Check the headers of a body at a time in Unix seconds. A signature is taken once.
    ///
    /// # Errors
    /// [`Unsigned`] says what is wrong.
    pub fn verify(
        &self,
        timestamp: Option<&str>,
        signature: Option<&str>,
        body: &[u8],
        now: u64,
    ) -> Result<(), Unsigned> {
        let (Some(timestamp), Some(signature)) = (timestamp, signature) else {
            return Err(Unsigned::Missing);
        };
        // digits alone: a number with a sign or spaces would sign another text than it is read as
        let plain = (1..=15).contains(&timestamp.len()) && timestamp.bytes().all(|b| b.is_ascii_digit());
        let at: u64 = timestamp.parse().ok().filter(|_| plain).ok_or(Unsigned::Malformed)?;
        let tag = signature.strip_prefix("v0=").filter(|hex| hex.len() == 64).ok_or(Unsigned::Malformed)?;
        let tag = hex::decode(tag).map_err(|_| Unsigned::Malformed)?;
        if now.abs_diff(at) > WINDOW_S {
            return Err(Unsigned::Old);
        }
        // every secret is tried, whichever fits: the time tells nothing
        let fits = self.secrets.iter().filter(|secret| signs(secret, timestamp, body, &tag)).count();
        if fits == 0 {
            return Err(Unsigned::Wrong);
        }
        let until = at.saturating_add(WINDOW_S);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.is_first(&tag, until, now) { Ok(()) } else { Err(Unsigned::Replayed) }
    }
}

/// Compared in constant time.
fn signs(secret: &Secret, timestamp: &str, body: &[u8], tag: &[u8]) -> bool {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes()) else { return false };
    mac.update(b"v0:");
    mac.update(timestamp.as_bytes());
    mac.update(b":");
    mac.update(body);
    mac.verify_slice(tag).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{Unsigned, Verifier};

    /// The example of Slack's documentation.
    const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";
    const AT: u64 = 1_531_420_618;
    const SIGNATURE: &str = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";
    const BODY: &str = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V\
        &channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=\
        https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=\
        398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";

    fn verify(at: &str, signature: Option<&str>, body: &str, now: u64) -> Result<(), Unsigned> {
        Verifier::of(vec![SECRET.into()]).verify(Some(at), signature, body.as_bytes(), now)
    }

    #[test]
    fn the_documented_example_is_taken_once_and_within_five_minutes() {
        let at = AT.to_string();
        for now in [AT, AT + 300, AT - 300] {
            assert_eq!(verify(&at, Some(SIGNATURE), BODY, now), Ok(()), "{now}");
        }
        for now in [AT + 301, AT - 301, 0, u64::MAX] {
            assert_eq!(verify(&at, Some(SIGNATURE), BODY, now), Err(Unsigned::Old), "{now}");
        }
        let verifier = Verifier::of(vec![SECRET.into()]);
        let again = || verifier.verify(Some(&at), Some(SIGNATURE), BODY.as_bytes(), AT + 10);
        assert_eq!((again(), again()), (Ok(()), Err(Unsigned::Replayed)));
    }

    #[test]
    fn anything_else_is_refused() {
        let at = AT.to_string();
        let changed = format!("{BODY}&x=1");
        assert_eq!(verify(&at, Some(SIGNATURE), &changed, AT), Err(Unsigned::Wrong));
        assert_eq!(verify(&(AT + 1).to_string(), Some(SIGNATURE), BODY, AT), Err(Unsigned::Wrong));
        assert_eq!(verify(&at, None, BODY, AT), Err(Unsigned::Missing));
        let other = Verifier::of(vec!["other".into()]);
        assert_eq!(other.verify(Some(&at), Some(SIGNATURE), BODY.as_bytes(), AT), Err(Unsigned::Wrong));
        assert_eq!(
            Verifier::of(Vec::new()).verify(Some(&at), Some(SIGNATURE), BODY.as_bytes(), AT),
            Err(Unsigned::Wrong)
        );
        for signature in ["", "v0=", "v1=00", &SIGNATURE[3..], &SIGNATURE[..66], &SIGNATURE.replace('a', "g")]
        {
            assert_eq!(verify(&at, Some(signature), BODY, AT), Err(Unsigned::Malformed), "{signature}");
        }
        for time in ["", "-1", "+1531420618", " 1531420618", "1e9", "9999999999999999"] {
            assert_eq!(verify(time, Some(SIGNATURE), BODY, AT), Err(Unsigned::Malformed), "{time}");
        }
    }

    #[test]
    fn either_secret_is_taken_while_they_change() {
        let both = Verifier::of(vec!["new".into(), SECRET.into()]);
        assert_eq!(both.verify(Some(&AT.to_string()), Some(SIGNATURE), BODY.as_bytes(), AT), Ok(()));
    }
}
