//! Which layers sit on which pipeline stage (`distributed/utils.py` `get_pp_indices`).

use std::ops::Range;

/// Stages are bounded by the layers anyway; this bounds work on hostile numbers.
const MOST_STAGES: u64 = 1 << 16;

/// `L` layers over `P` stages: each gets `floor(L/P)`, and the `L mod P` extra layers go one each to the stages
/// `P-2, P-3, …`: never to the last (it holds `lm_head`), to the first only when every other has one.
/// A given partition is taken when it has `P` positive parts that sum to `L`. `None`: a stage would be empty.
pub fn stages(layers: usize, pp: u64, partition: Option<&[u64]>) -> Option<Vec<Range<usize>>> {
    if pp == 0 || pp > MOST_STAGES {
        return None;
    }
    let count = usize::try_from(pp).ok()?;
    if count > layers {
        return None;
    }
    let sizes = match partition {
        Some(parts) => given(parts, count, layers)?,
        None => even(layers, count)?,
    };
    let mut first = 0_usize;
    Some(
        sizes
            .into_iter()
            .map(|size| {
                let range = first..first.saturating_add(size);
                first = range.end;
                range
            })
            .collect(),
    )
}

/// A given partition: one positive part for each stage, all layers together.
fn given(parts: &[u64], count: usize, layers: usize) -> Option<Vec<usize>> {
    let parts: Vec<usize> = parts.iter().map(|n| usize::try_from(*n)).collect::<Result<_, _>>().ok()?;
    let total = parts.iter().try_fold(0_usize, |sum, n| sum.checked_add(*n))?;
    (parts.len() == count && total == layers && !parts.contains(&0)).then_some(parts)
}

/// The engine's own partition.
fn even(layers: usize, count: usize) -> Option<Vec<usize>> {
    let (each, extra) = (layers.checked_div(count)?, layers.checked_rem(count)?);
    // the `extra` stages before the last get one layer more
    let first_with_extra = count.saturating_sub(1).saturating_sub(extra);
    let size = |i: usize| {
        let gets_extra = i >= first_with_extra && i.saturating_add(1) < count;
        each.saturating_add(usize::from(gets_extra))
    };
    Some((0..count).map(size).collect())
}

#[cfg(test)]
mod tests {
    use super::stages;

    fn sizes(layers: usize, pp: u64) -> Option<Vec<usize>> {
        stages(layers, pp, None).map(|s| s.into_iter().map(|r| r.len()).collect())
    }

    #[test]
    fn extra_layers_go_before_the_last_stage() {
        assert_eq!(sizes(32, 6), Some(vec![5, 5, 5, 6, 6, 5]));
        assert_eq!(sizes(32, 9), Some(vec![3, 3, 3, 4, 4, 4, 4, 4, 3]));
        assert_eq!(sizes(61, 4), Some(vec![15, 15, 16, 15]));
        assert_eq!(sizes(80, 2), Some(vec![40, 40]));
        assert_eq!(sizes(7, 4), Some(vec![2, 2, 2, 1]));
        assert_eq!(sizes(32, 33), None);
        assert_eq!(sizes(32, 0), None);
        assert_eq!(sizes(32, u64::MAX), None);
    }

    #[test]
    fn a_given_partition_must_add_up() {
        assert_eq!(stages(5, 2, Some(&[2, 3])), Some(vec![0..2, 2..5]));
        assert_eq!(stages(5, 2, Some(&[2, 2])), None);
        assert_eq!(stages(5, 2, Some(&[5, 0])), None);
        assert_eq!(stages(5, 2, Some(&[5])), None);
        assert_eq!(stages(5, 2, Some(&[u64::MAX, u64::MAX])), None);
    }
}
