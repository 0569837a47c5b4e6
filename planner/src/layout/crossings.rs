//! How many edges cross.

/// Counts the crossings between two layers. Edges are pairs of places in them.
///
/// After Barth, Jünger and Mutzel: crossings are inversions, and a tree of sums counts them.
pub(super) fn count(edges: &mut [(usize, usize)], lower: usize) -> usize {
    edges.sort_unstable();
    let mut sums = vec![0_usize; lower + 1];
    let (mut crossings, mut seen) = (0, 0);
    for (_, to) in edges.iter() {
        // Of the edges so far, those that end further right cross this one.
        let mut at = to + 1;
        let mut left = 0;
        while at > 0 {
            left += sums[at];
            at &= at - 1;
        }
        crossings += seen - left;
        let mut at = to + 1;
        while at <= lower {
            sums[at] += 1;
            at += at & at.wrapping_neg();
        }
        seen += 1;
    }
    crossings
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn crossings_are_pairs_of_edges_in_different_orders(
            mut edges in prop::collection::vec((0..12_usize, 0..9_usize), 0..40),
        ) {
            let crosses = |(a, b): (usize, usize), (c, d): (usize, usize)| {
                (a < c && b > d) || (a > c && b < d)
            };
            let pairs = (0..edges.len()).flat_map(|n| (0..n).map(move |m| (n, m)));
            let expected = pairs.filter(|(n, m)| crosses(edges[*n], edges[*m])).count();
            prop_assert_eq!(count(&mut edges, 9), expected);
        }
    }
}
