//! Transformers of the BERT family: BERT, `DistilBERT`, `RoBERTa` and `MPNet`.
//!
//! The tokens of several texts stand in one matrix, one row each, one text after another: dense
//! layers see them all at once, without padding, and only attention goes text by text.

use ndarray::{Array2, Array3, ArrayView2, Axis, linalg::general_mat_mul};

use super::{
    math::{self, Activation, Linear, Norm, for_each_row, part, part_mut},
    shape::{Family, Shape},
    weights::{Broken, Weights},
};

/// How many distances `MPNet` tells apart.
const BUCKETS: usize = 32;
/// The distance from which on `MPNet` tells none apart.
const FAR: f32 = 128.0;
/// Layers of a transformer: the largest of the family have 48.
const LAYERS: usize = 256;

/// A transformer with its numbers.
#[derive(Debug)]
pub(super) struct Transformer {
    words: Array2<f32>,
    /// What is added for where a token stands, from the first position on.
    positions: Array2<f32>,
    norm: Norm,
    layers: Vec<Layer>,
    heads: usize,
    /// What `MPNet` adds for the distance of two tokens: one row for each bucket.
    distances: Option<Array2<f32>>,
}

/// One layer: attention, and two dense layers behind it.
#[derive(Debug)]
struct Layer {
    /// Query, key and value beside each other; the query is scaled already.
    attention: Linear,
    mix: Linear,
    mix_norm: Norm,
    widen: Linear,
    activation: Activation,
    narrow: Linear,
    narrow_norm: Norm,
}

/// What the parts of a layer are called.
struct Names {
    layer: &'static str,
    attention: [&'static str; 3],
    mix: &'static str,
    mix_norm: &'static str,
    widen: &'static str,
    narrow: &'static str,
    narrow_norm: &'static str,
}

impl Names {
    fn of(family: Family) -> Self {
        let bert = Self {
            layer: "encoder.layer",
            attention: ["attention.self.query", "attention.self.key", "attention.self.value"],
            mix: "attention.output.dense",
            mix_norm: "attention.output.LayerNorm",
            widen: "intermediate.dense",
            narrow: "output.dense",
            narrow_norm: "output.LayerNorm",
        };
        match family {
            Family::Bert | Family::Roberta => bert,
            Family::Mpnet => Self {
                attention: ["attention.attn.q", "attention.attn.k", "attention.attn.v"],
                mix: "attention.attn.o",
                mix_norm: "attention.LayerNorm",
                ..bert
            },
            Family::Distilbert => Self {
                layer: "transformer.layer",
                attention: ["attention.q_lin", "attention.k_lin", "attention.v_lin"],
                mix: "attention.out_lin",
                mix_norm: "sa_layer_norm",
                widen: "ffn.lin1",
                narrow: "ffn.lin2",
                narrow_norm: "output_layer_norm",
            },
        }
    }
}

impl Transformer {
    /// Reads the numbers of a transformer of a shape.
    pub(super) fn load(shape: &Shape, weights: &Weights) -> Result<Self, Broken> {
        if shape.num_hidden_layers > LAYERS {
            return Err(Broken(format!("it has {} layers", shape.num_hidden_layers)));
        }
        let distances = match shape.model_type {
            Family::Mpnet => {
                let name = "encoder.relative_attention_bias.weight";
                Some(table(weights, name, shape.num_attention_heads, BUCKETS)?)
            }
            _ => None,
        };
        let size = shape.hidden_size;
        let layers = (0..shape.num_hidden_layers).map(|it| Layer::load(shape, weights, it));
        Ok(Self {
            words: table(weights, "embeddings.word_embeddings.weight", size, 1)?,
            positions: positions(shape, weights)?,
            norm: weights.norm("embeddings.LayerNorm", size, shape.layer_norm_eps)?,
            layers: layers.collect::<Result<_, _>>()?,
            heads: shape.num_attention_heads,
            distances,
        })
    }

    /// Returns the vectors of the tokens of texts, one row each, one text after another.
    pub(super) fn run(&self, texts: &[Vec<u32>]) -> Result<Array2<f32>, Broken> {
        let mut rows = self.look_up(texts)?;
        self.norm.apply(&mut rows);
        let most = texts.iter().map(Vec::len).max().unwrap_or_default();
        let far = self.distances.as_ref().map(|it| by_distance(it, most));
        for layer in &self.layers {
            let mixed = layer.attend(&rows, texts, (self.heads, far.as_ref()));
            layer.go_on(&mut rows, &mixed);
        }
        Ok(rows)
    }

    fn look_up(&self, texts: &[Vec<u32>]) -> Result<Array2<f32>, Broken> {
        let tokens: usize = texts.iter().map(Vec::len).sum();
        let mut rows = Array2::zeros((tokens, self.words.ncols()));
        let placed = texts.iter().flat_map(|text| text.iter().enumerate());
        for (mut row, (at, token)) in rows.outer_iter_mut().zip(placed) {
            let word = usize::try_from(*token).unwrap_or(usize::MAX);
            if word >= self.words.nrows() || at >= self.positions.nrows() {
                let why = format!("token {token} at {at}, of which its weights know nothing");
                return Err(Broken(format!("its `tokenizer.json` makes {why}")));
            }
            row += &self.words.row(word);
            row += &self.positions.row(at);
        }
        Ok(rows)
    }
}

/// Returns what is added for where a token stands, with what is added for each token alike.
fn positions(shape: &Shape, weights: &Weights) -> Result<Array2<f32>, Broken> {
    let size = shape.hidden_size;
    let first = shape.first_position();
    let all = first + shape.positions();
    let positions = table(weights, "embeddings.position_embeddings.weight", size, all)?;
    let mut positions = part(positions.view(), first..all, 0..size).to_owned();
    let kinds = "embeddings.token_type_embeddings.weight";
    if weights.has(kinds) || shape.model_type == Family::Bert {
        positions += &table(weights, kinds, size, 1)?.row(0);
    }
    Ok(positions)
}

/// Returns a matrix of rows of `columns` numbers, at least so many.
fn table(
    weights: &Weights,
    name: &str,
    columns: usize,
    rows: usize,
) -> Result<Array2<f32>, Broken> {
    let table = weights.matrix(name)?;
    if table.ncols() != columns || table.nrows() < rows {
        let is = table.dim();
        return Err(Broken(format!("its tensor `{name}` is {is:?}, not {:?}", (rows, columns))));
    }
    Ok(table)
}

impl Layer {
    fn load(shape: &Shape, weights: &Weights, number: usize) -> Result<Self, Broken> {
        let names = Names::of(shape.model_type);
        let name = |part: &str| format!("{}.{number}.{part}", names.layer);
        let size = shape.hidden_size;
        let square = |part: &str| {
            let linear = weights.linear(&name(part), size)?;
            if linear.bias.len() == size {
                return Ok(linear);
            }
            Err(Broken(format!("its tensor `{}` has not {size} rows", name(part))))
        };
        let norm = |part: &str| weights.norm(&name(part), size, shape.layer_norm_eps);
        let [query, key, value] = names.attention;
        let mut query = square(query)?;
        #[expect(clippy::cast_precision_loss, reason = "a head has some ten numbers")]
        let scale = ((size / shape.num_attention_heads) as f32).sqrt().recip();
        query.weight *= scale;
        query.bias.iter_mut().for_each(|it| *it *= scale);
        let widen = weights.linear(&name(names.widen), size)?;
        let narrow = weights.linear(&name(names.narrow), widen.bias.len())?;
        if narrow.bias.len() != size {
            return Err(Broken(format!("its tensor `{}` has not {size} rows", name(names.narrow))));
        }
        Ok(Self {
            attention: beside(&[query, square(key)?, square(value)?])?,
            mix: square(names.mix)?,
            mix_norm: norm(names.mix_norm)?,
            widen,
            activation: shape.activation()?,
            narrow,
            narrow_norm: norm(names.narrow_norm)?,
        })
    }

    /// Returns what each token takes from the tokens of its text.
    fn attend(
        &self,
        rows: &Array2<f32>,
        texts: &[Vec<u32>],
        (heads, far): (usize, Option<&Array3<f32>>),
    ) -> Array2<f32> {
        let all = self.attention.apply(rows);
        let size = rows.ncols();
        let each = size / heads;
        let mut mixed = Array2::zeros(rows.dim());
        let mut start = 0;
        for len in texts.iter().map(Vec::len) {
            let text = start..start + len;
            start += len;
            let mut shares = Array2::zeros((len, len));
            for head in 0..heads {
                let of = |which: usize| {
                    let from = which * size + head * each;
                    part(all.view(), text.clone(), from..from + each)
                };
                general_mat_mul(1.0, &of(0), &of(1).t(), 0.0, &mut shares);
                if let Some(far) = far {
                    shares += &part(far.index_axis(Axis(0), head), 0..len, 0..len);
                }
                for_each_row(&mut shares, math::softmax);
                let to = head * each..(head + 1) * each;
                let mut to = part_mut(mixed.view_mut(), text.clone(), to);
                general_mat_mul(1.0, &shares, &of(2), 0.0, &mut to);
            }
        }
        mixed
    }

    /// Changes each token by what it took.
    fn go_on(&self, rows: &mut Array2<f32>, mixed: &Array2<f32>) {
        self.mix.add_to(rows, mixed);
        self.mix_norm.apply(rows);
        let mut wide = self.widen.apply(rows);
        self.activation.apply(&mut wide);
        self.narrow.add_to(rows, &wide);
        self.narrow_norm.apply(rows);
    }
}

/// Makes one dense layer of several that see the same.
fn beside(layers: &[Linear; 3]) -> Result<Linear, Broken> {
    let weights: Vec<ArrayView2<'_, f32>> = layers.iter().map(|it| it.weight.view()).collect();
    let weight = ndarray::concatenate(Axis(1), &weights).map_err(|err| Broken(err.to_string()))?;
    let bias = layers.iter().flat_map(|it| it.bias.iter().copied()).collect();
    Ok(Linear { weight: weight.as_standard_layout().into_owned(), bias })
}

/// Returns what is added for each pair of tokens, by head.
fn by_distance(table: &Array2<f32>, most: usize) -> Array3<f32> {
    Array3::from_shape_fn((table.ncols(), most, most), |(head, from, to)| {
        table[(bucket(from, to), head)]
    })
}

/// Returns the bucket of a distance: the near ones each have their own, the far ones share, and
/// what is behind has buckets of its own.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "distances are a few hundred"
)]
fn bucket(from: usize, to: usize) -> usize {
    let half = BUCKETS / 2;
    let near = half / 2;
    let distance = from.abs_diff(to);
    let bucket = if distance < near {
        distance
    } else {
        let share = (distance as f32 / near as f32).ln() / (FAR / near as f32).ln();
        (near + (share * (half - near) as f32) as usize).min(half - 1)
    };
    if to > from { half + bucket } else { bucket }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_distances_are_told_apart_and_far_ones_share() {
        let behind = |distance| bucket(0, distance) - 16;
        let all: Vec<usize> = [1, 7, 8, 11, 12, 16, 23, 64, 91, 127, 500].map(behind).to_vec();
        assert_eq!(all, [1, 7, 8, 8, 9, 10, 11, 14, 15, 15, 15]);
        assert_eq!([0, 1, 7, 8, 12, 500].map(|it| bucket(it, 0)), [0, 1, 7, 8, 9, 15]);
    }
}
