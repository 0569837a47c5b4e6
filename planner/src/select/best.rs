//! The best of many scores.

/// Returns places that include the `most` best ones, if each score may be off by `slack`. `may`
/// filters the places.
pub(super) fn candidate_places(
    scores: &[f64],
    most: usize,
    slack: f64,
    may: impl Fn(usize) -> bool,
) -> Vec<usize> {
    if most == 0 {
        return Vec::new();
    }
    let mut places: Vec<usize> = (0..scores.len()).filter(|place| may(*place)).collect();
    if places.len() > most {
        let mut known: Vec<f64> = places.iter().map(|place| scores[*place]).collect();
        let (_, least, _) = known.select_nth_unstable_by(most - 1, |a, b| b.total_cmp(a));
        let least = *least - 2.0 * slack;
        places.retain(|place| scores[*place] >= least);
    }
    places
}

/// Returns the best places, best first. Ties keep the order of places.
pub(super) fn best_first(mut scored: Vec<(usize, f64)>, most: usize) -> Vec<(usize, f64)> {
    scored.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    scored.truncate(most);
    scored
}
