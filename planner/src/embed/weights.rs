//! The weights of a model in `safetensors` files. Tensors are read one by one, so memory holds the
//! model once.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::Path,
    sync::Mutex,
};

use ndarray::Array2;
use serde::Deserialize;
use serde_json::Value;

use super::math::{Linear, Norm};

const GROUP_LEN: usize = 32;
const FIRST_TENSOR: &str = "embeddings.word_embeddings.weight";
/// Maximum size of the header of a file. Large models need much less, because they have a few
/// hundred tensors.
const MAX_HEADER_BYTES: u64 = 16 << 20;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct InvalidModel(pub(super) String);

impl InvalidModel {
    fn for_tensor(name: &str, reason: impl std::fmt::Display) -> Self {
        Self(format!("its tensor `{name}` {reason}"))
    }
}

#[derive(Debug, Deserialize)]
struct Tensor {
    dtype: NumberType,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum NumberType {
    F32,
    F16,
    BF16,
    U8,
    #[serde(other)]
    Other,
}

impl NumberType {
    fn byte_size(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::U8 | Self::Other => 1,
        }
    }
}

#[derive(Debug)]
enum WeightsSource {
    File(Mutex<File>),
    Memory(&'static [u8]),
}

#[derive(Debug)]
pub(super) struct Weights {
    tensors: BTreeMap<String, Tensor>,
    data_start: u64,
    source: WeightsSource,
    prefix: String,
}

impl Weights {
    pub(super) fn open(path: &Path) -> Result<Self, InvalidModel> {
        let unreadable = |err| InvalidModel(format!("`{}` cannot be read: {err}", path.display()));
        let mut file = File::open(path).map_err(unreadable)?;
        let len = file.metadata().map_err(unreadable)?.len();
        let mut header = [0; 8];
        file.read_exact(&mut header).map_err(unreadable)?;
        let size = u64::from_le_bytes(header);
        let mut header = Vec::new();
        file.by_ref()
            .take(size.min(MAX_HEADER_BYTES))
            .read_to_end(&mut header)
            .map_err(unreadable)?;
        Self::new(&header, size, len, WeightsSource::File(Mutex::new(file)))
    }

    pub(super) fn from_binary(bytes: &'static [u8]) -> Result<Self, InvalidModel> {
        let (size, rest) = bytes.split_first_chunk().unwrap_or((&[0; 8], &[]));
        let size = u64::from_le_bytes(*size);
        let header = rest.get(..usize::try_from(size).unwrap_or(usize::MAX)).unwrap_or_default();
        Self::new(header, size, bytes.len() as u64, WeightsSource::Memory(bytes))
    }

    fn new(
        header: &[u8],
        size: u64,
        len: u64,
        source: WeightsSource,
    ) -> Result<Self, InvalidModel> {
        let incomplete_error = |reason: &dyn std::fmt::Display| {
            InvalidModel(format!(
                "its weights are not a complete `safetensors` file ({reason}): fetch it again"
            ))
        };
        let all: BTreeMap<String, Value> =
            serde_json::from_slice(header).map_err(|err| incomplete_error(&err))?;
        let data_start = size.saturating_add(8);
        let mut tensors = BTreeMap::new();
        for (name, value) in all.into_iter().filter(|(name, _)| name != "__metadata__") {
            let tensor: Tensor =
                serde_json::from_value(value).map_err(|err| incomplete_error(&err))?;
            let (from, to) = tensor.data_offsets;
            let size = tensor
                .shape
                .iter()
                .try_fold(tensor.dtype.byte_size(), |all, len| all.checked_mul(*len as u64));
            let is_whole = from <= to && to <= len.saturating_sub(data_start);
            if !is_whole || (tensor.dtype != NumberType::Other && size != Some(to - from)) {
                return Err(incomplete_error(&format_args!("`{name}` is cut off")));
            }
            tensors.insert(name, tensor);
        }
        let mut names = tensors.keys().map(|name| name.strip_suffix(".q4").unwrap_or(name));
        let prefix = names.find_map(|name| name.strip_suffix(FIRST_TENSOR)).map(ToOwned::to_owned);
        let prefix = prefix.ok_or_else(|| {
            InvalidModel(format!("its weights have no `{FIRST_TENSOR}`: it is not a BERT model"))
        })?;
        Ok(Self { tensors, data_start, source, prefix })
    }

    pub(super) fn has_tensor(&self, name: &str) -> bool {
        self.find_tensor(name).is_some()
    }

    pub(super) fn load_vector(&self, name: &str) -> Result<Vec<f32>, InvalidModel> {
        let info =
            self.find_tensor(name).ok_or_else(|| InvalidModel::for_tensor(name, "is missing"))?;
        match info.shape[..] {
            [_] => self.read_numbers(name, info),
            _ => {
                Err(InvalidModel::for_tensor(name, format_args!("has the shape {:?}", info.shape)))
            }
        }
    }

    pub(super) fn load_matrix(&self, name: &str) -> Result<Array2<f32>, InvalidModel> {
        let Some(info) = self.find_tensor(name) else {
            return self.load_quantised_matrix(name);
        };
        let [rows, columns] = info.shape[..] else {
            return Err(InvalidModel::for_tensor(
                name,
                format_args!("has the shape {:?}", info.shape),
            ));
        };
        shape_matrix(name, rows, columns, self.read_numbers(name, info)?)
    }

    fn load_quantised_matrix(&self, name: &str) -> Result<Array2<f32>, InvalidModel> {
        let missing = || InvalidModel::for_tensor(name, "is missing");
        let halves = self.find_tensor(&format!("{name}.q4")).ok_or_else(missing)?;
        let scales = self.find_tensor(&format!("{name}.scale")).ok_or_else(missing)?;
        let scales = self.read_numbers(name, scales)?;
        let [rows, half] = halves.shape[..] else {
            return Err(InvalidModel::for_tensor(
                name,
                format_args!("has the shape {:?}", halves.shape),
            ));
        };
        let bytes = self.read_bytes(name, halves)?;
        if halves.dtype != NumberType::U8 || scales.len() * GROUP_LEN != bytes.len() * 2 {
            return Err(InvalidModel::for_tensor(name, "does not have one scale for each group"));
        }
        let mut numbers = Vec::with_capacity(bytes.len() * 2);
        for (bytes, scale) in bytes.chunks_exact(GROUP_LEN / 2).zip(scales) {
            let halves = bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]);
            numbers.extend(halves.map(|half| (f32::from(half) - 8.0) * scale));
        }
        shape_matrix(name, rows, half * 2, numbers)
    }

    pub(super) fn load_linear(&self, name: &str, inputs: usize) -> Result<Linear, InvalidModel> {
        let weight = self.load_matrix(&format!("{name}.weight"))?;
        let bias = self.load_vector(&format!("{name}.bias"))?;
        if weight.dim() != (bias.len(), inputs) {
            let reason = format_args!("is {:?}, not {:?}", weight.dim(), (bias.len(), inputs));
            return Err(InvalidModel::for_tensor(name, reason));
        }
        Ok(Linear { weight: weight.t().as_standard_layout().into_owned(), bias })
    }

    pub(super) fn load_norm(
        &self,
        name: &str,
        len: usize,
        epsilon: f32,
    ) -> Result<Norm, InvalidModel> {
        let (scale, shift) = if self.has_tensor(&format!("{name}.weight")) {
            ("weight", "bias")
        } else {
            ("gamma", "beta")
        };
        let scale = self.load_vector(&format!("{name}.{scale}"))?;
        let shift = self.load_vector(&format!("{name}.{shift}"))?;
        if (scale.len(), shift.len()) != (len, len) {
            return Err(InvalidModel::for_tensor(
                name,
                format_args!("does not have {len} numbers"),
            ));
        }
        Ok(Norm { scale, shift, epsilon })
    }

    fn find_tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(&format!("{}{name}", self.prefix))
    }

    fn read_numbers(&self, name: &str, info: &Tensor) -> Result<Vec<f32>, InvalidModel> {
        let bytes = self.read_bytes(name, info)?;
        let halves = bytes.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes));
        match info.dtype {
            NumberType::F32 => {
                Ok(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
            }
            NumberType::F16 => Ok(halves.map(from_half).collect()),
            NumberType::BF16 => {
                Ok(halves.map(|half| f32::from_bits(u32::from(half) << 16)).collect())
            }
            other => Err(InvalidModel::for_tensor(
                name,
                format_args!("is of the kind {other:?}, not F32"),
            )),
        }
    }

    fn read_bytes(&self, name: &str, info: &Tensor) -> Result<Cow<'static, [u8]>, InvalidModel> {
        let (from, to) = info.data_offsets;
        let data_start = self.data_start + from;
        let len = usize::try_from(to - from)
            .map_err(|_| InvalidModel::for_tensor(name, "is too large"))?;
        match &self.source {
            WeightsSource::Memory(all) => {
                let data_start = usize::try_from(data_start).unwrap_or(usize::MAX);
                let bytes = data_start.checked_add(len).and_then(|end| all.get(data_start..end));
                bytes.map(Cow::Borrowed).ok_or_else(|| InvalidModel::for_tensor(name, "is cut off"))
            }
            WeightsSource::File(file) => {
                let unreadable =
                    |err| InvalidModel::for_tensor(name, format_args!("cannot be read: {err}"));
                let mut file = file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                file.seek(SeekFrom::Start(data_start)).map_err(unreadable)?;
                let mut bytes = vec![0; len];
                file.read_exact(&mut bytes).map_err(unreadable)?;
                Ok(Cow::Owned(bytes))
            }
        }
    }
}

fn shape_matrix(
    name: &str,
    rows: usize,
    columns: usize,
    numbers: Vec<f32>,
) -> Result<Array2<f32>, InvalidModel> {
    Array2::from_shape_vec((rows, columns), numbers)
        .map_err(|err| InvalidModel::for_tensor(name, err))
}

fn from_half(bits: u16) -> f32 {
    let (sign, exponent) = (u32::from(bits & 0x8000) << 16, u32::from(bits >> 10) & 31);
    let fraction = u32::from(bits & 1_023);
    let size = match exponent {
        // A subnormal number is a multiple of 2⁻²⁴.
        0 => f32::from(bits & 1_023) * f32::from_bits(0x3380_0000),
        31 => f32::from_bits(0x7f80_0000 | (fraction << 13)),
        _ => f32::from_bits(((exponent + 112) << 23) | (fraction << 13)),
    };
    f32::from_bits(size.to_bits() | sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_numbers_are_converted_exactly() {
        for (bits, want) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333_251_95),
            (0x7bff, 65_504.0),
            (0x0400, 6.103_515_6e-5),
            (0x0001, 5.960_464_5e-8),
            (0x83ff, -6.097_555e-5),
            (0xfc00, f32::NEG_INFINITY),
        ] {
            assert_eq!(from_half(bits).to_bits(), f32::to_bits(want), "{bits:#x}");
        }
        assert!(from_half(0x7e00).is_nan());
    }
}
