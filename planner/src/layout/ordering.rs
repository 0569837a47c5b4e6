//! In which order nodes stand in their layers, so that few edges cross.

use super::layers::Layered;

/// How often all layers are gone through.
const SWEEPS: usize = 24;
/// How often in a row that may help nothing.
const PATIENCE: usize = 4;
/// About how many steps exchanging neighbours may take.
const EXCHANGE_WORK: usize = 2_000_000;

/// Orders the layers. Sweeps down and up put every node at the mean of its neighbours; what
/// crosses least is kept, and then neighbours are exchanged while that helps.
pub(super) fn reduce_crossings(graph: &mut Layered) {
    begin(graph);
    let mut places = vec![0; graph.layer_of.len()];
    note(graph, &mut places);
    let mut best = (crossings_of(graph, &places), graph.layers.clone());
    let mut in_vain = 0;
    for sweep in 0..SWEEPS {
        if best.0 == 0 || in_vain == PATIENCE {
            break;
        }
        let is_down = sweep % 2 == 0;
        let layers = graph.layers.len();
        for step in 1..layers {
            let layer = if is_down { step } else { layers - 1 - step };
            sort_layer(graph, layer, is_down, &mut places);
        }
        let crossings = crossings_of(graph, &places);
        in_vain += 1;
        if crossings < best.0 {
            best = (crossings, graph.layers.clone());
            in_vain = 0;
        }
    }
    graph.layers = best.1;
    note(graph, &mut places);
    if best.0 > 0 {
        exchange(graph, &mut places);
    }
}

/// Orders nodes as a walk down from the first ones meets them, so that what hangs together stands
/// together.
fn begin(graph: &mut Layered) {
    let mut seen = vec![false; graph.layer_of.len()];
    let starts: Vec<usize> = graph.layers.iter().flatten().copied().collect();
    let mut layers = vec![Vec::new(); graph.layers.len()];
    for start in starts {
        let mut path = vec![start];
        while let Some(node) = path.pop() {
            if std::mem::replace(&mut seen[node], true) {
                continue;
            }
            layers[graph.layer_of[node]].push(node);
            path.extend(graph.below[node].iter().rev().filter(|it| !seen[**it]));
        }
    }
    graph.layers = layers;
}

/// Takes down where everything is in its layer.
fn note(graph: &Layered, places: &mut [usize]) {
    for layer in &graph.layers {
        for (place, node) in layer.iter().enumerate() {
            places[*node] = place;
        }
    }
}

fn sort_layer(graph: &mut Layered, layer: usize, is_down: bool, places: &mut [usize]) {
    let fixed = if is_down { &graph.above } else { &graph.below };
    let mut keyed: Vec<(f64, usize)> = graph.layers[layer]
        .iter()
        .map(|node| (mean(&fixed[*node], places).unwrap_or(real(places[*node])), *node))
        .collect();
    keyed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    for (place, ((_, node), there)) in keyed.iter().zip(&mut graph.layers[layer]).enumerate() {
        *there = *node;
        places[*node] = place;
    }
}

fn mean(neighbours: &[usize], places: &[usize]) -> Option<f64> {
    if neighbours.is_empty() {
        return None;
    }
    let sum: usize = neighbours.iter().map(|it| places[*it]).sum();
    Some(real(sum) / real(neighbours.len()))
}

#[expect(clippy::cast_precision_loss, reason = "places are far below 2^52")]
fn real(count: usize) -> f64 {
    count as f64
}

fn crossings_of(graph: &Layered, places: &[usize]) -> usize {
    let mut edges = Vec::new();
    let pairs = graph.layers.windows(2);
    let counted = pairs.map(|pair| {
        edges.clear();
        for node in &pair[0] {
            edges.extend(graph.below[*node].iter().map(|to| (places[*node], places[*to])));
        }
        count_crossings(&mut edges, pair[1].len())
    });
    counted.sum()
}

/// Counts the crossings between two layers. Edges are pairs of places in them.
///
/// After Barth, Jünger and Mutzel: crossings are inversions, and a tree of sums counts them.
fn count_crossings(edges: &mut [(usize, usize)], lower: usize) -> usize {
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

/// Exchanges neighbours while that makes fewer edges cross.
fn exchange(graph: &mut Layered, places: &mut [usize]) {
    let mut left = EXCHANGE_WORK;
    loop {
        let mut has_helped = false;
        for layer in 0..graph.layers.len() {
            for at in 1..graph.layers[layer].len() {
                let (a, b) = (graph.layers[layer][at - 1], graph.layers[layer][at]);
                let cost = [&graph.above, &graph.below].map(|it| it[a].len() * it[b].len() + 1);
                let Some(rest) = left.checked_sub(cost[0] + cost[1]) else { return };
                left = rest;
                let crossing = |a: usize, b: usize| {
                    between(&graph.above[a], &graph.above[b], places)
                        + between(&graph.below[a], &graph.below[b], places)
                };
                if crossing(b, a) < crossing(a, b) {
                    graph.layers[layer].swap(at - 1, at);
                    places.swap(a, b);
                    has_helped = true;
                }
            }
        }
        if !has_helped {
            return;
        }
    }
}

/// Counts the crossings of edges of two nodes of a layer, the first of which stands left.
fn between(left: &[usize], right: &[usize], places: &[usize]) -> usize {
    let crosses = |it: &usize| right.iter().filter(|to| places[**to] < places[*it]).count();
    left.iter().map(crosses).sum()
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
            prop_assert_eq!(count_crossings(&mut edges, 9), expected);
        }
    }
}
