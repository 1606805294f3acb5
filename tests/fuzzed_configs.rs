//! Configurations that nobody wrote: real ones with sizes, names and shapes changed at random. Each is read or refused, and
//! what is read can be planned, without a panic, a hang or memory that grows.
//!
//! `SHARDWISE_TEST_CONFIGS=10000000 cargo test --release --test fuzzed_configs -- --nocapture` makes the long run.

#[path = "../fuzz/checks.rs"]
#[expect(dead_code, reason = "texts and matrices are checked over the corpus")]
mod checks;

use std::io::Read;
use std::time::{Duration, Instant};

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::{Map, Value, json};
use shardwise::catalogue::models;
use shardwise::ingest::config_json;

/// How many are made when nobody asks for more.
const SHORT_RUN: u64 = 4_000;
/// One of so many is planned as well as read.
const PLANNED: u64 = 16;
/// Long enough for any honest answer in an unoptimised build on a loaded machine; a hang is longer.
const HANG: Duration = Duration::from_secs(20);

/// Values that sizes are not, and some that they are.
const SCALARS: [&str; 34] = [
    "null",
    "true",
    "false",
    "0",
    "1",
    "2",
    "3",
    "7",
    "8",
    "16",
    "61",
    "64",
    "100",
    "128",
    "256",
    "4096",
    "65536",
    "1000000000",
    "-1",
    "2147483648",
    "9223372036854775807",
    "18446744073709551615",
    "0.5",
    "1.5",
    "-0.0",
    "1e308",
    "1e-308",
    "\"\"",
    "\"8\"",
    "\"NaN\"",
    "\"bfloat16\"",
    "\"sliding_attention\"",
    "[]",
    "{}",
];

/// A source of choices that gives the same ones again for the same seed.
struct Dice(TestRng);

impl Dice {
    fn new(seed: u64) -> Self {
        let mut bytes = [0x5a_u8; 16];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Self(TestRng::from_seed(RngAlgorithm::XorShift, &bytes))
    }

    /// A number below `bound`, and 0 for a bound of 0.
    fn below(&mut self, bound: usize) -> usize {
        let drawn = usize::try_from(self.0.next_u32()).expect("32 bits fit");
        drawn.checked_rem(bound).unwrap_or(0)
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    fn scalar(&mut self) -> Value {
        if self.one_in(4) {
            let bits = self.below(20) + 1;
            return json!(self.below(1 << bits));
        }
        serde_json::from_str(SCALARS[self.below(SCALARS.len())]).expect("a JSON value")
    }

    /// Some object of the document: the top as often as all that it holds.
    fn object<'a>(&mut self, top: &'a mut Map<String, Value>) -> &'a mut Map<String, Value> {
        let inner: Vec<String> =
            top.iter().filter(|(_, value)| value.is_object()).map(|(key, _)| key.clone()).collect();
        if inner.is_empty() || self.one_in(2) {
            return top;
        }
        let key = &inner[self.below(inner.len())];
        match top.get_mut(key) {
            Some(Value::Object(found)) => found,
            _ => unreachable!("only objects were listed"),
        }
    }

    fn key(&mut self, of: &Map<String, Value>) -> Option<String> {
        let place = self.below(of.len());
        of.keys().nth(place).cloned()
    }

    /// One change that a careless or hostile author could make.
    fn change(&mut self, document: &mut Map<String, Value>, donor: &Map<String, Value>) {
        let object = self.object(document);
        let Some(key) = self.key(object) else { return };
        match self.below(8) {
            0 => drop(object.remove(&key)),
            1 | 2 => drop(object.insert(key, self.scalar())),
            3 => {
                if let Some(value) = donor.get(&key) {
                    object.insert(key, value.clone());
                }
            }
            4 => {
                if let Some((key, value)) = self.key(donor).and_then(|key| donor.get_key_value(&key)) {
                    object.insert(key.clone(), value.clone());
                }
            }
            5 => {
                let value = object.remove(&key).unwrap_or_default();
                object.insert(key, if self.one_in(2) { json!([value]) } else { json!({"value": value}) });
            }
            6 => self.lengthen(object.get_mut(&key)),
            _ => self.scale(object.get_mut(&key)),
        }
    }

    /// A list gets longer or shorter, or one of its values another one.
    fn lengthen(&mut self, value: Option<&mut Value>) {
        let Some(Value::Array(list)) = value else { return };
        match self.below(3) {
            0 => list.truncate(self.below(list.len())),
            1 => list.extend_from_within(..),
            _ => {
                let place = self.below(list.len());
                if let Some(value) = list.get_mut(place) {
                    *value = self.scalar();
                }
            }
        }
    }

    /// A number becomes a neighbour, a part or a multiple of itself.
    fn scale(&mut self, value: Option<&mut Value>) {
        let Some(number) = value else { return };
        let Some(was) = number.as_u64() else { return };
        *number = json!(match self.below(4) {
            0 => was.saturating_sub(1),
            1 => was.saturating_add(1),
            2 => was / 2,
            _ => was.saturating_mul(3),
        });
    }

    /// Bytes that are no longer quite JSON.
    fn damage(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        let place = self.below(bytes.len());
        match self.below(3) {
            0 => bytes.truncate(place),
            1 => bytes[place] = self.below(256).to_le_bytes()[0],
            _ => drop(bytes.splice(place..place, *b"{\"a\":[")),
        }
        bytes
    }
}

/// The catalogue's configurations and those of the engine's figures, without the few that are long: a list of thousands of
/// modules says nothing that a short one does not, and takes the run's time.
fn real_configs() -> Vec<Map<String, Value>> {
    let packed = &include_bytes!("data/oracle/configs.jsonl.gz")[..];
    let mut lines = String::new();
    flate2::read::GzDecoder::new(packed).read_to_string(&mut lines).expect("packed text");
    let measured =
        lines.lines().map(|line| config_json::parse(line).expect("a line of JSON")["config"].take());
    models::all()
        .iter()
        .filter(|model| model.same_shape_as.is_none())
        .map(|model| model.to_read().0)
        .chain(measured)
        .filter(|config| config.to_string().len() < 16_000)
        .filter_map(|config| config.as_object().cloned())
        .collect()
}

/// The most memory this process has held, in KiB, where the system tells.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// Reads (and now and then plans) `count` configurations; gives the longest time that one took.
fn run(seed: u64, count: u64, configs: &[Map<String, Value>]) -> Duration {
    let mut dice = Dice::new(seed);
    let mut slowest = Duration::ZERO;
    for made in 0..count {
        let mut document = configs[dice.below(configs.len())].clone();
        for _ in 0..=dice.below(4) {
            let donor = dice.below(configs.len());
            dice.change(&mut document, &configs[donor]);
        }
        let mut bytes = serde_json::to_vec(&document).expect("JSON");
        if dice.one_in(16) {
            bytes = dice.damage(bytes);
        }
        let start = Instant::now();
        checks::config_json(&bytes);
        if made % PLANNED == 0 {
            let request = json!({"model": {"config": document}, "cluster": "2x8 H100"});
            checks::plan_request(&serde_json::to_vec(&request).expect("JSON"));
        }
        let took = start.elapsed();
        assert!(took < HANG, "{took:?} for {}", String::from_utf8_lossy(&bytes));
        slowest = slowest.max(took);
    }
    slowest
}

#[test]
fn changed_configurations_are_read_or_refused() {
    #[expect(clippy::disallowed_methods, reason = "a switch of the test alone")]
    let asked = std::env::var("SHARDWISE_TEST_CONFIGS").ok().map(|text| text.parse().expect("a count"));
    let count = asked.unwrap_or(SHORT_RUN);
    let configs = real_configs();
    assert!(configs.len() > 150, "too few configurations to change: {}", configs.len());

    let start = Instant::now();
    let rounds = 20;
    for round in 0..rounds {
        let half = count / rounds / 2;
        let (one, two) = std::thread::scope(|scope| {
            let other = scope.spawn(|| run(2 * round + 1, half, &configs));
            (run(2 * round, half, &configs), other.join().expect("no panic"))
        });
        println!(
            "{} configurations in {:.0?}: slowest {:.1?}, peak {} MiB",
            (round + 1) * half * 2,
            start.elapsed(),
            one.max(two),
            peak_kib() / 1024
        );
    }
}
