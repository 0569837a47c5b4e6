use super::layers::LayeredGraph;

const MAX_SWEEPS: usize = 24;
const MAX_SWEEPS_WITHOUT_GAIN: usize = 4;

/// Orders the nodes of each layer, and keeps the order with the fewest crossings of several passes.
pub(super) fn reduce_crossings(graph: &mut LayeredGraph) {
    order_by_search(graph);
    let mut positions = vec![0; graph.layer_of.len()];
    record_positions(graph, &mut positions);
    let mut best = (count_all_crossings(graph, &positions), graph.layers.clone());
    let mut sweeps_without_gain = 0;
    for sweep in 0..MAX_SWEEPS {
        if best.0 == 0 || sweeps_without_gain == MAX_SWEEPS_WITHOUT_GAIN {
            break;
        }
        let is_down = sweep % 2 == 0;
        let layers = graph.layers.len();
        for step in 1..layers {
            let layer = if is_down { step } else { layers - 1 - step };
            sort_layer(graph, layer, is_down, &mut positions);
        }
        let crossings = count_all_crossings(graph, &positions);
        sweeps_without_gain += 1;
        if crossings < best.0 {
            best = (crossings, graph.layers.clone());
            sweeps_without_gain = 0;
        }
    }
    graph.layers = best.1;
}

/// Orders nodes by a depth-first search from the first nodes, so that connected nodes are close.
fn order_by_search(graph: &mut LayeredGraph) {
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
            path.extend(graph.below[node].iter().rev().filter(|next| !seen[**next]));
        }
    }
    graph.layers = layers;
}

fn record_positions(graph: &LayeredGraph, positions: &mut [usize]) {
    for layer in &graph.layers {
        for (place, node) in layer.iter().enumerate() {
            positions[*node] = place;
        }
    }
}

fn sort_layer(graph: &mut LayeredGraph, layer: usize, is_down: bool, positions: &mut [usize]) {
    let fixed = if is_down { &graph.above } else { &graph.below };
    let mut keyed: Vec<(f64, usize)> = graph.layers[layer]
        .iter()
        .map(|node| {
            (mean_position(&fixed[*node], positions).unwrap_or(to_f64(positions[*node])), *node)
        })
        .collect();
    keyed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    for (place, ((_, node), there)) in keyed.iter().zip(&mut graph.layers[layer]).enumerate() {
        *there = *node;
        positions[*node] = place;
    }
}

fn mean_position(neighbours: &[usize], positions: &[usize]) -> Option<f64> {
    if neighbours.is_empty() {
        return None;
    }
    let sum: usize = neighbours.iter().map(|node| positions[*node]).sum();
    Some(to_f64(sum) / to_f64(neighbours.len()))
}

#[expect(clippy::cast_precision_loss, reason = "places are far below 2^52")]
fn to_f64(count: usize) -> f64 {
    count as f64
}

fn count_all_crossings(graph: &LayeredGraph, positions: &[usize]) -> usize {
    let mut edges = Vec::new();
    let pairs = graph.layers.windows(2);
    let counted = pairs.map(|pair| {
        edges.clear();
        for node in &pair[0] {
            edges.extend(graph.below[*node].iter().map(|to| (positions[*node], positions[*to])));
        }
        count_crossings(&mut edges, pair[1].len())
    });
    counted.sum()
}

/// Counts the crossings between two layers (Barth, Jünger and Mutzel). Edges are pairs of
/// positions.
fn count_crossings(edges: &mut [(usize, usize)], lower: usize) -> usize {
    edges.sort_unstable();
    let mut sums = vec![0_usize; lower + 1];
    let (mut crossings, mut seen) = (0, 0);
    for (_, to) in edges.iter() {
        // Earlier edges that end further right cross this edge.
        let mut index = to + 1;
        let mut left = 0;
        while index > 0 {
            left += sums[index];
            index &= index - 1;
        }
        crossings += seen - left;
        let mut index = to + 1;
        while index <= lower {
            sums[index] += 1;
            index += index & index.wrapping_neg();
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
            prop_assert_eq!(count_crossings(&mut edges, 9), expected);
        }
    }
}
