//! Least squares that outliers cannot pull: Levenberg-Marquardt on `2 s^2 (sqrt(1 + (r/s)^2) - 1)`.
//!
//! Deterministic: no randomness, a fixed order of sums, forward differences of a fixed step.

/// How a fit is run.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Residuals beyond this count by their size, not their square.
    pub scale: f64,
    pub most_iterations: usize,
}

/// The minimum near `start`, and its cost.
pub fn minimise(
    start: &[f64],
    settings: Settings,
    residuals: impl Fn(&[f64]) -> Vec<f64>,
) -> (Vec<f64>, f64) {
    let mut x = start.to_vec();
    let mut r = residuals(&x);
    let mut cost = total(&r, settings.scale);
    let mut damping = 1e-2;
    for _ in 0..settings.most_iterations {
        let (normal, gradient) = normal_equations(&x, &r, settings.scale, &residuals);
        let before = cost;
        let mut is_better = false;
        for _ in 0..8 {
            let Some(step) = damped_step(&normal, &gradient, damping) else {
                damping *= 10.0;
                continue;
            };
            let tried: Vec<f64> = x.iter().zip(&step).map(|(x, s)| x - s.clamp(-1.0, 1.0)).collect();
            let tried_r = residuals(&tried);
            let tried_cost = total(&tried_r, settings.scale);
            if tried_cost < cost {
                (x, r, cost) = (tried, tried_r, tried_cost);
                damping = (damping * 0.3).max(1e-9);
                is_better = true;
                break;
            }
            damping *= 4.0;
        }
        if !is_better || (before - cost) < 1e-7 * before {
            break;
        }
    }
    (x, cost)
}

fn total(residuals: &[f64], scale: f64) -> f64 {
    residuals.iter().map(|r| 2.0 * scale * scale * ((1.0 + (r / scale).powi(2)).sqrt() - 1.0)).sum()
}

/// `J^T W J` and `J^T W r`, with the weights of the loss.
fn normal_equations(
    x: &[f64],
    r: &[f64],
    scale: f64,
    residuals: &impl Fn(&[f64]) -> Vec<f64>,
) -> (Vec<Vec<f64>>, Vec<f64>) {
    const STEP: f64 = 1e-4;
    let weights: Vec<f64> = r.iter().map(|r| 1.0 / (1.0 + (r / scale).powi(2)).sqrt()).collect();
    let columns: Vec<Vec<f64>> = (0..x.len())
        .map(|i| {
            let mut moved = x.to_vec();
            if let Some(value) = moved.get_mut(i) {
                *value += STEP;
            }
            residuals(&moved).iter().zip(r).map(|(a, b)| (a - b) / STEP).collect()
        })
        .collect();
    let weighted = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).zip(&weights).map(|((a, b), w)| if *a == 0.0 { 0.0 } else { a * b * w }).sum()
    };
    let normal = columns.iter().map(|a| columns.iter().map(|b| weighted(a, b)).collect()).collect();
    let gradient = columns.iter().map(|a| weighted(a, r)).collect();
    (normal, gradient)
}

/// The solution of `(N + damping * diag(N)) step = gradient`, by Cholesky; `None` when N is not positive.
fn damped_step(normal: &[Vec<f64>], gradient: &[f64], damping: f64) -> Option<Vec<f64>> {
    let mut damped = normal.to_vec();
    for (i, row) in damped.iter_mut().enumerate() {
        if let Some(diagonal) = row.get_mut(i) {
            *diagonal += damping * *diagonal + 1e-12;
        }
    }
    solve(&damped, gradient)
}

/// Solve a symmetric positive system by Cholesky; `None` when it is not positive.
#[must_use]
pub fn solve(matrix: &[Vec<f64>], right: &[f64]) -> Option<Vec<f64>> {
    let n = right.len();
    let mut lower = vec![vec![0.0; n]; n];
    let at = |m: &[Vec<f64>], i: usize, j: usize| m.get(i).and_then(|row| row.get(j)).copied().unwrap_or(0.0);
    for i in 0..n {
        for j in 0..=i {
            let dot: f64 = (0..j).map(|k| at(&lower, i, k) * at(&lower, j, k)).sum();
            let left = at(matrix, i, j) - dot;
            let value = if i == j {
                if left <= 0.0 {
                    return None;
                }
                left.sqrt()
            } else {
                left / at(&lower, j, j)
            };
            if let Some(slot) = lower.get_mut(i).and_then(|row| row.get_mut(j)) {
                *slot = value;
            }
        }
    }
    let mut y = vec![0.0; n];
    for i in 0..n {
        let dot: f64 = (0..i).map(|k| at(&lower, i, k) * y.get(k).copied().unwrap_or(0.0)).sum();
        let value = (right.get(i).copied().unwrap_or(0.0) - dot) / at(&lower, i, i);
        if let Some(slot) = y.get_mut(i) {
            *slot = value;
        }
    }
    let mut x = vec![0.0; n];
    for i in (0..n).rev() {
        let dot: f64 = (i + 1..n).map(|k| at(&lower, k, i) * x.get(k).copied().unwrap_or(0.0)).sum();
        let value = (y.get(i).copied().unwrap_or(0.0) - dot) / at(&lower, i, i);
        if let Some(slot) = x.get_mut(i) {
            *slot = value;
        }
    }
    x.iter().all(|v| v.is_finite()).then_some(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_in_spite_of_outliers() {
        let points: Vec<(f64, f64)> = (0..40)
            .map(|i| (f64::from(i), if i % 10 == 0 { 500.0 } else { 3.0 + 2.0 * f64::from(i) }))
            .collect();
        let settings = Settings { scale: 0.5, most_iterations: 60 };
        let (x, _) =
            minimise(&[0.0, 0.0], settings, |p| points.iter().map(|(x, y)| p[0] + p[1] * x - y).collect());
        assert!((x[0] - 3.0).abs() < 0.2 && (x[1] - 2.0).abs() < 0.02, "{x:?}");
    }

    #[test]
    fn cholesky_solves_and_refuses() {
        let solved = solve(&[vec![4.0, 2.0], vec![2.0, 3.0]], &[8.0, 7.0]).expect("positive");
        assert!((solved[0] - 1.25).abs() < 1e-12 && (solved[1] - 1.5).abs() < 1e-12);
        assert_eq!(solve(&[vec![0.0]], &[1.0]), None);
    }
}
