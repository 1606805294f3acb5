//! How much is asked at once: users, requests a second, the pace of a user.

use super::super::words::Words;
use super::{Figures, whole};
use crate::ingest::bounds;

/// What people count a load in.
const PEOPLE: [&str; 17] = [
    "users",
    "user",
    "people",
    "seats",
    "concurrent",
    "requests",
    "sequences",
    "seqs",
    "simultaneous",
    "clients",
    "sessions",
    "agents",
    "developers",
    "customers",
    "chats",
    "streams",
    "parallel",
];

impl Figures {
    /// "5 requests per second", "20 req/s", "300 requests a minute".
    pub(super) fn take_rate(&mut self, words: &mut Words, i: usize, number: f64, unit: &str) -> bool {
        let around = |offset: usize| words.at(i + offset).unwrap_or_default();
        let (next, after) = (around(1), around(2));
        let in_a_word = |word: &str| match word {
            "rps" | "qps" | "req/s" | "requests/s" | "requests/sec" | "req/sec" | "r/s" | "queries/s" => {
                Some(1.0)
            }
            "rpm" | "qpm" | "req/min" | "requests/min" | "requests/minute" => Some(1.0 / 60.0),
            _ => None,
        };
        let spelled = matches!(next, "requests" | "req" | "queries")
            && matches!(after, "per" | "a" | "/" | "each" | "every");
        let every = if matches!(around(3), "minute" | "min") { 1.0 / 60.0 } else { 1.0 };
        let scale = if unit.is_empty() { in_a_word(next) } else { in_a_word(unit) };
        let Some(scale) = scale.or(spelled.then_some(every)) else { return false };
        self.rate = Some(number * scale);
        words.take(i);
        // "per second" goes with it
        let of_rate = |word: &str| {
            in_a_word(word).is_some()
                || matches!(
                    word,
                    "requests"
                        | "req"
                        | "queries"
                        | "per"
                        | "a"
                        | "/"
                        | "second"
                        | "sec"
                        | "s"
                        | "each"
                        | "every"
                        | "minute"
                        | "min"
                )
        };
        let behind = (1..=3).take_while(|n| unit.is_empty() && words.at(i + n).is_some_and(of_rate)).count();
        words.take_all(i + 1..i + 1 + behind);
        true
    }

    /// "30 tokens/s per user": the time of a token.
    pub(super) fn take_speed(&mut self, words: &mut Words, i: usize, number: f64, unit: &str) -> bool {
        let per_s =
            |word: &str| matches!(word, "tok/s" | "tokens/s" | "t/s" | "tps" | "tokens/sec" | "tok/sec");
        let start = match (per_s(unit), words.at(i + 1).is_some_and(per_s)) {
            (true, _) => i + 1,
            (_, true) if unit.is_empty() => i + 2,
            _ => return false,
        };
        let each = matches!(
            (words.at(start), words.at(start + 1)),
            (Some("per" | "a" | "each" | "/"), Some("user" | "request" | "sequence" | "stream"))
        );
        let ms = 1000.0 / number;
        if !each || !bounds::MILLISECONDS.contains(&ms) {
            return false;
        }
        self.tpot_ms = Some(ms);
        words.take_all(i..start + 2);
        true
    }

    /// "users who think 30 s".
    pub(super) fn take_think_time(&mut self, words: &mut Words, i: usize, number: f64, unit: &str) -> bool {
        let seconds = matches!(unit, "s" | "sec")
            || (unit.is_empty() && matches!(words.at(i + 1), Some("s" | "sec" | "seconds")));
        if !seconds {
            return false;
        }
        let thinks = |word: &str| matches!(word, "think" | "thinking" | "thinks" | "pause");
        let near = (1..=3).find(|n| words.before(i, *n).is_some_and(thinks));
        let behind = (1..=3).find(|n| words.at(i + n).is_some_and(thinks));
        if near.is_some() || behind.is_some() {
            self.think_s = Some(number);
            words.take(i);
            if let Some(n) = near {
                words.take(i - n);
            }
            if let Some(n) = behind {
                words.take(i + n);
            }
        }
        true
    }

    /// "50 users", "five concurrent requests", "concurrency 64".
    pub(super) fn take_people(&mut self, words: &mut Words, i: usize, number: f64) -> bool {
        let next = words.at(i + 1).unwrap_or_default();
        let counted = PEOPLE.contains(&next);
        if !counted && !matches!(words.before(i, 1), Some("concurrency" | "users")) {
            return false;
        }
        // "100 parallel 2k prompts": the next word may be more of the same
        self.users = whole(number);
        words.take(i);
        if counted {
            words.take(i + 1);
        }
        true
    }
}
