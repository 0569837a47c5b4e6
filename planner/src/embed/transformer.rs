//! The BERT transformer. The tokens of several texts are rows of one matrix, so dense layers
//! process all texts in one product without padding.

use ndarray::{Array2, ArrayView2, Axis, linalg::general_mat_mul};

use super::{
    math::{self, Activation, Linear, Norm, for_each_row, part_mut, part_of},
    shape::ModelShape,
    weights::{InvalidModel, Weights},
};

/// Maximum number of layers. Published models have up to 48 layers.
const MAX_LAYERS: usize = 256;

#[derive(Debug)]
pub(super) struct Transformer {
    word_embeddings: Array2<f32>,
    positions: Array2<f32>,
    norm: Norm,
    layers: Vec<Layer>,
    head_count: usize,
}

#[derive(Debug)]
struct Layer {
    /// The layers of query, key and value side by side. The query is already scaled.
    attention: Linear,
    attention_output: Linear,
    attention_norm: Norm,
    feed_forward_input: Linear,
    activation: Activation,
    feed_forward_output: Linear,
    feed_forward_norm: Norm,
}

impl Transformer {
    pub(super) fn load(shape: &ModelShape, weights: &Weights) -> Result<Self, InvalidModel> {
        if shape.num_hidden_layers > MAX_LAYERS {
            return Err(InvalidModel(format!("it has {} layers", shape.num_hidden_layers)));
        }
        let size = shape.hidden_size;
        let layers = (0..shape.num_hidden_layers).map(|layer| Layer::load(shape, weights, layer));
        Ok(Self {
            word_embeddings: load_table(weights, "embeddings.word_embeddings.weight", size, 1)?,
            positions: load_positions(shape, weights)?,
            norm: weights.load_norm("embeddings.LayerNorm", size, shape.layer_norm_eps)?,
            layers: layers.collect::<Result<_, _>>()?,
            head_count: shape.num_attention_heads,
        })
    }

    pub(super) fn encode_tokens(&self, texts: &[Vec<u32>]) -> Result<Array2<f32>, InvalidModel> {
        let mut rows = self.look_up_embeddings(texts)?;
        self.norm.apply(&mut rows);
        for layer in &self.layers {
            let mixed = layer.attend_tokens(&rows, texts, self.head_count);
            layer.apply_feed_forward(&mut rows, &mixed);
        }
        Ok(rows)
    }

    fn look_up_embeddings(&self, texts: &[Vec<u32>]) -> Result<Array2<f32>, InvalidModel> {
        let tokens: usize = texts.iter().map(Vec::len).sum();
        let mut rows = Array2::zeros((tokens, self.word_embeddings.ncols()));
        let placed = texts.iter().flat_map(|text| text.iter().enumerate());
        for (mut row, (position, token)) in rows.outer_iter_mut().zip(placed) {
            let word = usize::try_from(*token).unwrap_or(usize::MAX);
            if word >= self.word_embeddings.nrows() || position >= self.positions.nrows() {
                let reason =
                    format!("token {token} at position {position}, which its weights do not have");
                return Err(InvalidModel(format!("its `tokenizer.json` makes {reason}")));
            }
            row += &self.word_embeddings.row(word);
            row += &self.positions.row(position);
        }
        Ok(rows)
    }
}

/// Loads the position embeddings, and adds the embedding of the first token type, which all tokens
/// of a text have.
fn load_positions(shape: &ModelShape, weights: &Weights) -> Result<Array2<f32>, InvalidModel> {
    let (size, count) = (shape.hidden_size, shape.max_position_embeddings);
    let positions = load_table(weights, "embeddings.position_embeddings.weight", size, count)?;
    let mut positions = part_of(positions.view(), 0..count, 0..size).to_owned();
    positions += &load_table(weights, "embeddings.token_type_embeddings.weight", size, 1)?.row(0);
    Ok(positions)
}

/// Loads a matrix with rows of `columns` numbers, and at least `rows` of them.
fn load_table(
    weights: &Weights,
    name: &str,
    columns: usize,
    rows: usize,
) -> Result<Array2<f32>, InvalidModel> {
    let table = weights.load_matrix(name)?;
    if table.ncols() != columns || table.nrows() < rows {
        let is = table.dim();
        return Err(InvalidModel(format!(
            "its tensor `{name}` is {is:?}, not {:?}",
            (rows, columns)
        )));
    }
    Ok(table)
}

impl Layer {
    fn load(shape: &ModelShape, weights: &Weights, number: usize) -> Result<Self, InvalidModel> {
        let name = |part: &str| format!("encoder.layer.{number}.{part}");
        let size = shape.hidden_size;
        let square = |part: &str| {
            let linear = weights.load_linear(&name(part), size)?;
            if linear.bias.len() == size {
                return Ok(linear);
            }
            Err(InvalidModel(format!("its tensor `{}` does not have {size} rows", name(part))))
        };
        let norm = |part: &str| weights.load_norm(&name(part), size, shape.layer_norm_eps);
        let mut query = square("attention.self.query")?;
        let key = square("attention.self.key")?;
        let value = square("attention.self.value")?;
        #[expect(clippy::cast_precision_loss, reason = "a head has some ten numbers")]
        let scale = ((size / shape.num_attention_heads) as f32).sqrt().recip();
        query.weight *= scale;
        query.bias.iter_mut().for_each(|number| *number *= scale);
        let feed_forward_input = weights.load_linear(&name("intermediate.dense"), size)?;
        let feed_forward_output =
            weights.load_linear(&name("output.dense"), feed_forward_input.bias.len())?;
        if feed_forward_output.bias.len() != size {
            let feed_forward_output = name("output.dense");
            return Err(InvalidModel(format!(
                "its tensor `{feed_forward_output}` does not have {size} rows"
            )));
        }
        Ok(Self {
            attention: join_layers(&[query, key, value])?,
            attention_output: square("attention.output.dense")?,
            attention_norm: norm("attention.output.LayerNorm")?,
            feed_forward_input,
            activation: shape.activation()?,
            feed_forward_output,
            feed_forward_norm: norm("output.LayerNorm")?,
        })
    }

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
                    part_of(all.view(), text.clone(), from..from + each)
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

    fn apply_feed_forward(&self, rows: &mut Array2<f32>, mixed: &Array2<f32>) {
        self.attention_output.add_to(rows, mixed);
        self.attention_norm.apply(rows);
        let mut wide = self.feed_forward_input.apply(rows);
        self.activation.apply(&mut wide);
        self.feed_forward_output.add_to(rows, &wide);
        self.feed_forward_norm.apply(rows);
    }
}

fn join_layers(layers: &[Linear; 3]) -> Result<Linear, InvalidModel> {
    let weights: Vec<ArrayView2<'_, f32>> =
        layers.iter().map(|layer| layer.weight.view()).collect();
    let weight =
        ndarray::concatenate(Axis(1), &weights).map_err(|err| InvalidModel(err.to_string()))?;
    let bias = layers.iter().flat_map(|layer| layer.bias.iter().copied()).collect();
    Ok(Linear { weight: weight.as_standard_layout().into_owned(), bias })
}
