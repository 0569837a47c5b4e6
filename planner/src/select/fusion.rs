//! The best of many scores.

/// Returns the places with the highest scores above 0, the best first, of those that `may` take
/// part. Equal ones are in the order of their places.
pub(super) fn best(scores: &[f32], most: usize, may: impl Fn(usize) -> bool) -> Vec<(usize, f64)> {
    let all = scores.iter().map(|it| f64::from(*it)).enumerate();
    let mut best: Vec<(usize, f64)> = all.filter(|(at, score)| *score > 0.0 && may(*at)).collect();
    let order = |a: &(usize, f64), b: &(usize, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if best.len() > most {
        best.select_nth_unstable_by(most, order);
        best.truncate(most);
    }
    best.sort_by(order);
    best
}
