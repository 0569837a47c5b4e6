//! The BERT transformer.
//!
//! The tokens of several texts are rows of one matrix, one text after another. Dense layers process
//! all rows at once, without padding. Only attention works on each text alone.

use ndarray::{Array2, ArrayView2, Axis, linalg::general_mat_mul};

use super::{
    math::{self, Activation, Linear, Norm, for_each_row, part, part_mut},
    shape::Shape,
    weights::{Broken, Weights},
};

/// Published models have up to 48.
const MAX_LAYERS: usize = 256;

#[derive(Debug)]
pub(super) struct Transformer {
    words: Array2<f32>,
    /// Position embeddings, with the embedding of the first token type added.
    positions: Array2<f32>,
    norm: Norm,
    layers: Vec<Layer>,
    heads: usize,
}

#[derive(Debug)]
struct Layer {
    /// Query, key and value side by side. The query is scaled already.
    attention: Linear,
    mix: Linear,
    mix_norm: Norm,
    widen: Linear,
    activation: Activation,
    narrow: Linear,
    narrow_norm: Norm,
}

impl Transformer {
    pub(super) fn load(shape: &Shape, weights: &Weights) -> Result<Self, Broken> {
        if shape.num_hidden_layers > MAX_LAYERS {
            return Err(Broken(format!("it has {} layers", shape.num_hidden_layers)));
        }
        let size = shape.hidden_size;
        let layers = (0..shape.num_hidden_layers).map(|layer| Layer::load(shape, weights, layer));
        Ok(Self {
            words: load_table(weights, "embeddings.word_embeddings.weight", size, 1)?,
            positions: load_positions(shape, weights)?,
            norm: weights.norm("embeddings.LayerNorm", size, shape.layer_norm_eps)?,
            layers: layers.collect::<Result<_, _>>()?,
            heads: shape.num_attention_heads,
        })
    }

    /// Returns the token vectors of texts, one row each, one text after another.
    pub(super) fn run(&self, texts: &[Vec<u32>]) -> Result<Array2<f32>, Broken> {
        let mut rows = self.look_up(texts)?;
        self.norm.apply(&mut rows);
        for layer in &self.layers {
            let mixed = layer.attend_tokens(&rows, texts, self.heads);
            layer.apply_feed_forward(&mut rows, &mixed);
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

/// Loads the position embeddings, and adds the embedding of the first token type, which all tokens
/// of a text have.
fn load_positions(shape: &Shape, weights: &Weights) -> Result<Array2<f32>, Broken> {
    let (size, count) = (shape.hidden_size, shape.max_position_embeddings);
    let positions = load_table(weights, "embeddings.position_embeddings.weight", size, count)?;
    let mut positions = part(positions.view(), 0..count, 0..size).to_owned();
    positions += &load_table(weights, "embeddings.token_type_embeddings.weight", size, 1)?.row(0);
    Ok(positions)
}

/// Loads a matrix with rows of `columns` numbers, and at least `rows` of them.
fn load_table(
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
        let name = |part: &str| format!("encoder.layer.{number}.{part}");
        let size = shape.hidden_size;
        let square = |part: &str| {
            let linear = weights.linear(&name(part), size)?;
            if linear.bias.len() == size {
                return Ok(linear);
            }
            Err(Broken(format!("its tensor `{}` has not {size} rows", name(part))))
        };
        let norm = |part: &str| weights.norm(&name(part), size, shape.layer_norm_eps);
        let mut query = square("attention.self.query")?;
        let key = square("attention.self.key")?;
        let value = square("attention.self.value")?;
        #[expect(clippy::cast_precision_loss, reason = "a head has some ten numbers")]
        let scale = ((size / shape.num_attention_heads) as f32).sqrt().recip();
        query.weight *= scale;
        query.bias.iter_mut().for_each(|number| *number *= scale);
        let widen = weights.linear(&name("intermediate.dense"), size)?;
        let narrow = weights.linear(&name("output.dense"), widen.bias.len())?;
        if narrow.bias.len() != size {
            let narrow = name("output.dense");
            return Err(Broken(format!("its tensor `{narrow}` has not {size} rows")));
        }
        Ok(Self {
            attention: join_layers(&[query, key, value])?,
            mix: square("attention.output.dense")?,
            mix_norm: norm("attention.output.LayerNorm")?,
            widen,
            activation: shape.activation()?,
            narrow,
            narrow_norm: norm("output.LayerNorm")?,
        })
    }

    /// Returns the attention of each token to the tokens of its text.
    fn attend_tokens(&self, rows: &Array2<f32>, texts: &[Vec<u32>], heads: usize) -> Array2<f32> {
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
                for_each_row(&mut shares, math::apply_softmax);
                let to = head * each..(head + 1) * each;
                let mut to = part_mut(mixed.view_mut(), text.clone(), to);
                general_mat_mul(1.0, &shares, &of(2), 0.0, &mut to);
            }
        }
        mixed
    }

    /// Updates each token with the result of the attention.
    fn apply_feed_forward(&self, rows: &mut Array2<f32>, mixed: &Array2<f32>) {
        self.mix.add_to(rows, mixed);
        self.mix_norm.apply(rows);
        let mut wide = self.widen.apply(rows);
        self.activation.apply(&mut wide);
        self.narrow.add_to(rows, &wide);
        self.narrow_norm.apply(rows);
    }
}

fn join_layers(layers: &[Linear; 3]) -> Result<Linear, Broken> {
    let weights: Vec<ArrayView2<'_, f32>> =
        layers.iter().map(|layer| layer.weight.view()).collect();
    let weight = ndarray::concatenate(Axis(1), &weights).map_err(|err| Broken(err.to_string()))?;
    let bias = layers.iter().flat_map(|layer| layer.bias.iter().copied()).collect();
    Ok(Linear { weight: weight.as_standard_layout().into_owned(), bias })
}
