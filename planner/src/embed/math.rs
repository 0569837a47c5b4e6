use std::ops::Range;

use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, Slice, linalg::general_mat_mul};

#[derive(Debug)]
pub(super) struct Linear {
    /// One row for each input, and one column for each output, because products with contiguous
    /// rows are the fastest.
    pub(super) weight: Array2<f32>,
    pub(super) bias: Vec<f32>,
}

impl Linear {
    pub(super) fn apply(&self, rows: &Array2<f32>) -> Array2<f32> {
        let mut out = Array2::zeros((rows.nrows(), self.bias.len()));
        self.add_to(&mut out, rows);
        out
    }

    pub(super) fn add_to(&self, out: &mut Array2<f32>, rows: &Array2<f32>) {
        for_each_row(out, |row| add_assign(row, &self.bias));
        general_mat_mul(1.0, rows, &self.weight, 1.0, out);
    }
}

/// Scales each row to mean 0 and variance 1, and then by learned factors.
#[derive(Debug)]
pub(super) struct Norm {
    pub(super) scale: Vec<f32>,
    pub(super) shift: Vec<f32>,
    /// Prevents a division by zero in a row of equal numbers.
    pub(super) epsilon: f32,
}

impl Norm {
    pub(super) fn apply(&self, rows: &mut Array2<f32>) {
        for_each_row(rows, |row| self.apply_to(row));
    }

    #[expect(clippy::cast_precision_loss, reason = "rows have some hundred numbers")]
    fn apply_to(&self, row: &mut [f32]) {
        let len = row.len() as f32;
        let mean = row.iter().sum::<f32>() / len;
        let variance =
            row.iter().map(|number| (number - mean) * (number - mean)).sum::<f32>() / len;
        let factor = (variance + self.epsilon).sqrt().recip();
        for (number, (scale, shift)) in row.iter_mut().zip(self.scale.iter().zip(&self.shift)) {
            *number = (*number - mean) * factor * scale + shift;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activation {
    Gelu,
    GeluTanh,
    Relu,
}

impl Activation {
    pub(super) fn apply(self, rows: &mut Array2<f32>) {
        for_each_row(rows, |row| match self {
            Self::Gelu => row.iter_mut().for_each(|number| *number = apply_gelu(*number)),
            Self::GeluTanh => row.iter_mut().for_each(|number| *number = gelu_tanh(*number)),
            Self::Relu => row.iter_mut().for_each(|number| *number = number.max(0.0)),
        });
    }
}

fn apply_gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + error_function(x * std::f32::consts::FRAC_1_SQRT_2))
}

fn gelu_tanh(x: f32) -> f32 {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    0.5 * x * (1.0 + (SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x)).tanh())
}

/// Returns the error function in `f32` precision, by the rational approximation of Cephes, Eigen
/// and XLA. It has no branches, so compilers vectorize it.
fn error_function(x: f32) -> f32 {
    const NUMERATOR: [f32; 7] = [
        -2.726_142_3e-10,
        2.770_681_4e-8,
        -2.101_024e-6,
        -5.692_506_4e-5,
        -7.349_906_3e-4,
        -2.954_6e-3,
        -1.609_603_3e-2,
    ];
    const DENOMINATOR: [f32; 5] =
        [-1.456_607_2e-5, -2.133_740_6e-4, -1.682_827e-3, -7.373_329e-3, -1.426_473_9e-2];
    let x = x.clamp(-4.0, 4.0);
    let square = x * x;
    let evaluate = |terms: &[f32]| terms.iter().fold(0.0, |sum, term| sum * square + term);
    x * evaluate(&NUMERATOR) / evaluate(&DENOMINATOR)
}

pub(super) fn apply_softmax(row: &mut [f32]) {
    let maximum = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for number in row.iter_mut() {
        *number = (*number - maximum).exp();
    }
    let sum: f32 = row.iter().sum();
    for number in row.iter_mut() {
        *number /= sum;
    }
}

/// Scales a vector to length one. A zero vector stays zero.
pub(super) fn normalize_vector(vector: &mut [f32]) {
    let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
    if length > 0.0 {
        for number in vector.iter_mut() {
            *number /= length;
        }
    }
}

pub(super) fn add_assign(sum: &mut [f32], added: &[f32]) {
    sum.iter_mut().zip(added).for_each(|(sum, number)| *sum += number);
}

pub(super) fn for_each_row(rows: &mut Array2<f32>, change: impl FnMut(&mut [f32])) {
    let len = rows.ncols().max(1);
    let all = rows.as_slice_mut().expect("new rows are contiguous");
    all.chunks_exact_mut(len).for_each(change);
}

pub(super) fn part_of(
    mut of: ArrayView2<'_, f32>,
    rows: Range<usize>,
    columns: Range<usize>,
) -> ArrayView2<'_, f32> {
    of.slice_axis_inplace(Axis(0), Slice::from(rows));
    of.slice_axis_inplace(Axis(1), Slice::from(columns));
    of
}

pub(super) fn part_mut(
    mut of: ArrayViewMut2<'_, f32>,
    rows: Range<usize>,
    columns: Range<usize>,
) -> ArrayViewMut2<'_, f32> {
    of.slice_axis_inplace(Axis(0), Slice::from(rows));
    of.slice_axis_inplace(Axis(1), Slice::from(columns));
    of
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    fn check_near(actual: f32, expected: f64) {
        assert!((f64::from(actual) - expected).abs() < 3e-7, "{actual} is not {expected}");
    }

    #[test]
    fn the_error_function_matches_published_tables() {
        for (x, expected) in [
            (0.0, 0.0),
            (0.1, 0.112_462_916_018_285),
            (0.5, 0.520_499_877_813_047),
            (1.0, 0.842_700_792_949_715),
            (1.5, 0.966_105_146_475_311),
            (2.0, 0.995_322_265_018_953),
            (3.0, 0.999_977_909_503_001),
            (5.0, 1.0),
        ] {
            check_near(error_function(x), expected);
            check_near(error_function(-x), -expected);
        }
    }

    #[test]
    fn activations_match_their_papers() {
        check_near(apply_gelu(1.0), 0.841_344_746_068_543);
        check_near(apply_gelu(-1.0), -0.158_655_253_931_457);
        check_near(gelu_tanh(1.0), 0.841_191_990_608_304);
        let mut rows = array![[-2.0, 0.5]];
        Activation::Relu.apply(&mut rows);
        assert_eq!(rows, array![[0.0, 0.5]]);
    }

    #[test]
    fn softmax_of_large_numbers_sums_to_one() {
        let mut row = [1_000.0, 1_000.0, f32::NEG_INFINITY];
        apply_softmax(&mut row);
        assert!(row.iter().zip([0.5, 0.5, 0.0]).all(|(value, share)| (value - share).abs() < 1e-6));
    }

    #[test]
    fn a_dense_layer_multiplies_and_adds() {
        let linear =
            Linear { weight: array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], bias: vec![0.5; 3] };
        let out = linear.apply(&array![[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]);
        assert_eq!(out, array![[1.5, 2.5, 3.5], [4.5, 5.5, 6.5], [5.5, 7.5, 9.5]]);
    }

    #[test]
    fn a_norm_scales_each_row_independently() {
        let norm = Norm { scale: vec![1.0, 2.0], shift: vec![0.0, 1.0], epsilon: 0.0 };
        let mut rows = array![[1.0, 3.0], [-5.0, -5.5]];
        norm.apply(&mut rows);
        assert_eq!(rows, array![[-1.0, 3.0], [1.0, -1.0]]);
    }
}
