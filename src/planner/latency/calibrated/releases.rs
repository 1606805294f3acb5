//! When engine releases came out: fixed costs fall from release to release.

use super::setting::EngineKind;

/// First of the month of a release, as a year: (version, year). Source: the projects' release pages and the
/// dates that the measurements carry.
const VLLM: &[([u32; 3], f64)] = &[
    ([0, 2, 0], 2023.9),
    ([0, 4, 0], 2024.25),
    ([0, 5, 0], 2024.45),
    ([0, 6, 0], 2024.7),
    ([0, 7, 0], 2025.05),
    ([0, 8, 0], 2025.2),
    ([0, 9, 0], 2025.4),
    ([0, 10, 0], 2025.55),
    ([0, 11, 0], 2025.75),
    ([0, 12, 0], 2025.92),
    ([0, 14, 0], 2026.04),
    ([0, 15, 0], 2026.08),
    ([0, 16, 0], 2026.13),
    ([0, 17, 0], 2026.17),
    ([0, 18, 0], 2026.21),
    ([0, 19, 0], 2026.27),
    ([0, 20, 0], 2026.33),
    ([0, 24, 0], 2026.5),
    ([0, 33, 0], 2026.88),
];

const SGLANG: &[([u32; 3], f64)] = &[
    ([0, 2, 0], 2024.55),
    ([0, 3, 0], 2024.7),
    ([0, 4, 0], 2024.92),
    ([0, 4, 6], 2025.3),
    ([0, 5, 0], 2025.65),
    ([0, 5, 3], 2025.77),
    ([0, 5, 5], 2025.85),
    ([0, 5, 6], 2025.92),
    ([0, 5, 7], 2026.0),
    ([0, 5, 8], 2026.07),
    ([0, 5, 9], 2026.15),
    ([0, 5, 10], 2026.27),
    ([0, 5, 12], 2026.37),
    ([0, 5, 14], 2026.46),
];

const TENSORRT_LLM: &[([u32; 3], f64)] = &[
    ([0, 5, 0], 2023.8),
    ([0, 8, 0], 2024.15),
    ([0, 9, 0], 2024.3),
    ([0, 12, 0], 2024.65),
    ([0, 16, 0], 2024.95),
    ([0, 20, 0], 2025.45),
    ([1, 0, 0], 2025.65),
    ([1, 1, 0], 2025.8),
    ([1, 2, 0], 2025.95),
    ([1, 3, 0], 2026.2),
];

/// What stands in for an unknown release.
pub const UNKNOWN_RELEASE: f64 = 2025.9;

/// The year of a release: that of the newest one not newer than `version`; `None` when the text is no version.
#[must_use]
pub fn released(engine: EngineKind, version: &str) -> Option<f64> {
    let table = match engine {
        EngineKind::Vllm => VLLM,
        EngineKind::Sglang => SGLANG,
        EngineKind::TensorRtLlm => TENSORRT_LLM,
        EngineKind::Other => return None,
    };
    let asked = numbers(version)?;
    let newest = table.iter().rev().find(|(known, _)| *known <= asked).or(table.first())?;
    Some(newest.1)
}

/// "v0.11.2.post1" is [0, 11, 2]; text that does not start with a number (after a `v`) is none.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let text = version.trim().trim_start_matches('v');
    let mut out = [0; 3];
    for (i, part) in text.split('.').take(3).enumerate() {
        let digits: &str = part.split(|c: char| !c.is_ascii_digit()).next().unwrap_or("");
        match (digits.parse::<u32>(), i) {
            (Ok(n), _) => {
                if let Some(slot) = out.get_mut(i) {
                    *slot = n;
                }
                if digits.len() < part.len() {
                    break;
                }
            }
            (Err(_), 0) => return None,
            (Err(_), _) => break,
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_ordered_and_found() {
        for table in [VLLM, SGLANG, TENSORRT_LLM] {
            assert!(table.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1));
        }
        for (engine, version, year) in [
            (EngineKind::Vllm, "0.11.2", Some(2025.75)),
            (EngineKind::Vllm, "0.99", Some(2026.88)),
            (EngineKind::Sglang, "v0.5.8.post1-cu130", Some(2026.07)),
            (EngineKind::TensorRtLlm, "1.2.0rc6.post2", Some(2025.95)),
            (EngineKind::TensorRtLlm, "1.2-era (doc table)", Some(2025.95)),
            (EngineKind::TensorRtLlm, "gpt-oss-dev", None),
            (EngineKind::Vllm, "nightly", None),
            (EngineKind::Other, "1.0", None),
        ] {
            assert_eq!(released(engine, version), year, "{version}");
        }
    }
}
