use proptest::{collection::vec, prelude::*};

use super::*;
use crate::select::{
    Centroid, Similarity, collision,
    parts::{MAX_PARTS, split_parts},
    rows::Rows,
    vector::{QueryVector, cosine, slack},
};

fn random_vectors(dimensions: usize, max_len: usize) -> impl Strategy<Value = Vec<Vec<f32>>> {
    vec(vec(-1.0_f32..1.0, dimensions), 1..max_len)
}

proptest! {
    #[test]
    fn selection_equals_an_exhaustive_search(rows in random_vectors(37, 60), query in vec(-1.0_f32..1.0, 37), most in 0_usize..8) {
        let index = Rows::new(rows.iter().enumerate().map(|(at, row)| (at * 2, row.as_slice())));
        let found = index.find_nearest(&QueryVector::new(query.clone()), most, |at| at % 3 != 0);
        let mut expected: Vec<(usize, f64)> = rows
            .iter()
            .enumerate()
            .map(|(at, row)| (at * 2, cosine(&query, row)))
            .filter(|(at, _)| at % 3 != 0)
            .collect();
        expected.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        expected.truncate(most);
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn a_quick_cosine_is_near_the_exact_one(
        (a, b) in (1_usize..200).prop_flat_map(|len| (vec(-9.0_f32..9.0, len), vec(-1e-3_f32..1e-3, len))),
    ) {
        let rows = Rows::new([(0, a.as_slice())].into_iter());
        let mut quick = Vec::new();
        rows.visit_quick_cosines(&[QueryVector::new(b.clone())], |_, _, score| quick.push(f64::from(score)));
        prop_assert!((quick[0] - cosine(&a, &b)).abs() <= slack(a.len()), "{quick:?}");
    }

    #[test]
    fn blockwise_comparison_misses_no_collision(rows in random_vectors(19, 150), threshold in -2.0_f64..2.0, cosines: bool) {
        let index = Rows::new(rows.iter().enumerate().map(|(at, row)| (at, row.as_slice())));
        let similarity = if cosines { Similarity::Cosine } else { Similarity::Dot };
        let found = collision::similar_pairs(&index, similarity, threshold, |at| at != 1).unwrap();
        let of = |a: &[f32], b: &[f32]| {
            let dot: f64 = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            if cosines { cosine(a, b) } else { dot }
        };
        let mut expected = Vec::new();
        for a in (0..rows.len()).filter(|at| *at != 1) {
            for b in (a + 1..rows.len()).filter(|at| *at != 1) {
                if of(&rows[a], &rows[b]) >= threshold {
                    expected.push((a, b));
                }
            }
        }
        prop_assert_eq!(found.iter().map(|pair| (pair.a, pair.b)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn no_example_is_less_similar_than_the_recorded_one(examples in random_vectors(5, 9)) {
        let centroid = Centroid::mean_of(&examples).unwrap();
        for (at, example) in examples.iter().enumerate() {
            let score = cosine(example, &centroid.mean);
            prop_assert!(score >= centroid.least_similar);
            prop_assert!((at == centroid.least_similar_index) <= (score <= centroid.least_similar));
        }
    }

    #[test]
    fn every_part_is_a_substring_of_the_query(query in "([a-z]{1,5}|and|then|list|show|[.,;?!\" \n]|\\PC){0,60}") {
        let parts = split_parts(&query);
        prop_assert!(parts.len() <= MAX_PARTS && parts.len() != 1);
        prop_assert!(parts.iter().all(|part| query.contains(part)));
    }

    #[test]
    fn random_queries_are_split_without_panic(query in any::<String>(), description in any::<String>()) {
        let tools = list_tools([make_tool("t", &description, &[&query])]);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for by in [Criterion::Lexical, Criterion::Hybrid] {
            let selection = runtime.block_on(Selector::new(None).select(&tools, &selection_request(&query, by), |_| true));
            prop_assert!(selection.unwrap().matches.len() <= 1);
        }
    }
}
