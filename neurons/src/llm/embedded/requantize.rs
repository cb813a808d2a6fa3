//! The conversion from Q4_1 to Q8_0, once after the download. candle has no fast kernel for Q4_1; Q8_0 is three to
//! seven times as fast on the CPU.

use std::path::Path;

use candle_core::Device;
use candle_core::quantized::{GgmlDType, QTensor, gguf_file};

use super::engine::EmbeddedError;

/// Reads the GGUF file `from` and writes it to `to` with every matrix in Q8_0.
///
/// # Errors
/// Returns [`EmbeddedError::Weights`] if `from` is no GGUF file or `to` cannot be written.
pub fn requantize(from: &Path, to: &Path) -> Result<(), EmbeddedError> {
    let mut file = std::fs::File::open(from)?;
    let content = gguf_file::Content::read(&mut file)?;
    let mut tensors: Vec<(String, QTensor)> = Vec::with_capacity(content.tensor_infos.len());
    for name in content.tensor_infos.keys() {
        let tensor = content.tensor(&mut file, name, &Device::Cpu)?;
        let keep = tensor.dtype() == GgmlDType::Q8_0 || tensor.shape().rank() < 2;
        let tensor = if keep { tensor } else { QTensor::quantize(&tensor.dequantize(&Device::Cpu)?, GgmlDType::Q8_0)? };
        tensors.push((name.clone(), tensor));
    }
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    let metadata: Vec<(&str, &gguf_file::Value)> =
        content.metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let part = to.with_extension("part");
    let mut writer = std::io::BufWriter::new(std::fs::File::create(&part)?);
    gguf_file::write(&mut writer, &metadata, &tensors)?;
    writer.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
    std::fs::rename(&part, to)?;
    Ok(())
}
