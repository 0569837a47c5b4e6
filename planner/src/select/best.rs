/// Returns the positions of the `max_count` best scores. Returns more of them if scores are equal,
/// or if each score may be wrong by `slack`. `is_allowed` filters the positions.
pub(super) fn candidate_places(
    scores: &[f64],
    max_count: usize,
    slack: f64,
    is_allowed: impl Fn(usize) -> bool,
) -> Vec<usize> {
    if max_count == 0 {
        return Vec::new();
    }
    let mut positions: Vec<usize> = (0..scores.len()).filter(|place| is_allowed(*place)).collect();
    if positions.len() > max_count {
        let mut known_scores: Vec<f64> = positions.iter().map(|place| scores[*place]).collect();
        let (_, minimum, _) =
            known_scores.select_nth_unstable_by(max_count - 1, |a, b| b.total_cmp(a));
        let minimum = *minimum - 2.0 * slack;
        positions.retain(|place| scores[*place] >= minimum);
    }
    positions
}

/// Returns the best positions, best first. Positions with equal scores keep their order.
pub(super) fn take_best(mut scored: Vec<(usize, f64)>, max_count: usize) -> Vec<(usize, f64)> {
    scored.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    scored.truncate(max_count);
    scored
}
