"""HCK-10xx: checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

# fmt: off
ROWS: Mapping[str, tuple[str, str, str]] = {
    "HCK-1001": ("not a known checkpoint format",
        ("The first bytes of the file are those of no format halogend reads (the name does not count), or the "
         "directory lacks what makes it a model."),
        ("Name a GGUF file, or a Hugging Face directory with config.json and safetensors files. A web page saved in "
         "a file's place starts with `<`.")),
    "HCK-1002": ("the file contradicts load_format",
        "`load_format` names one format, and what lies at the path of `model` is of another.",
        "Remove `load_format` (auto decides by the bytes), or name the right file."),
    "HCK-1003": ("the file is shorter than its header says",
        "A download or copy ended early.",
        "Fetch the file again and compare its size or digest with the source's."),
    "HCK-1004": ("a metadata key is missing or bad",
        ("The header, or a JSON file of the directory, lacks a key the architecture needs, holds a value of the "
         "wrong type or out of range, or cannot be parsed."),
        "Fetch the file again, or convert the model again with a current converter; the message names the key."),
    "HCK-1005": ("the architecture is not supported",
        "The model is of a kind this release cannot run, or sets a parameter of its kind that it does not know.",
        "Take a model of a kind the message names."),
    "HCK-1006": ("a quantisation type is not supported",
        "A tensor is stored in a type, or the model was quantised by a method, that this release cannot read.",
        "Take the model in another quantisation: any type of GGUF, AWQ or GPTQ of 4 bits, FP8, F16, BF16 or F32."),
    "HCK-1007": ("a tensor is missing",
        "The file lacks a tensor that the architecture or the index needs.",
        "Fetch or convert the file again; the message names the tensor."),
    "HCK-1008": ("a tensor is surplus or has the wrong shape",
        "The file holds a tensor the architecture does not know, or one whose shape contradicts the metadata.",
        "Check that tensors and metadata (or config.json) are of one model; the message names the tensor."),
    "HCK-1009": ("the tokenizer is bad",
        ("The vocabulary, its scores, types or merges, or the special tokens are missing or do not fit together, "
         "or the tokenizer is of a kind this release does not know."),
        "Fetch the tokenizer's files again, or convert the model again with them; the message names the key."),
    "HCK-1010": ("the model's file is not there or cannot be read",
        ("The path of `model`, or a file that the model names, does not exist, is of the wrong kind, is a symlink to "
         "nothing, or the daemon's user may not read it."),
        ("Mend the path or the permissions, or finish the download. A relative path starts at the daemon's working "
         "directory.")),
    "HCK-1011": ("the tensor index is bad",
        ("Entries of a tensor table or an index overlap, stand twice, leave holes or are misaligned, or it cannot be "
         "parsed, or names other files than there are."),
        "The file is damaged or hostile: fetch it again from a source you trust."),
    "HCK-1012": ("the version of the format is not supported",
        "The file is of a version of its format that this release does not read, or is of the other byte order.",
        "Convert the file to a version the message names."),
    "HCK-1013": ("the parts of a split checkpoint do not fit together",
        ("The file is one of several parts, and is not the first, or a file beside it that bears the name of a part "
         "belongs to another model."),
        ("Name the first part, `...-00001-of-0000N.gguf`, and keep all parts of one model in one folder under the "
         "names they were made with.")),
    "HCK-1014": ("the weights do not divide by the tensor-parallel size",
        ("Heads, the heads of keys and values, and the width of the feed-forward must each divide into as many equal "
         "parts as there are ranks, in units that the file's layout does not part."),
        "Set `tensor_parallel_size` to one of the sizes the message names, or convert with another block size."),
    "HCK-1015": ("the file is damaged",
        ("Bytes of a v2 checkpoint are not those that were written: their sha256 is another than the file's own "
         "record. A copy went wrong, or the disk did."),
        "Copy the file again, or convert the model again; `halogend verify` says which bytes are damaged."),
    "HCK-1016": ("there is too little room on the disk",
        "A conversion needs more bytes than the file system of its destination has free, or a quota allows.",
        "Make room, or name a destination on another disk. Nothing half-written is left behind."),
    "HCK-1017": ("the file cannot be written",
        "The folder of the destination is not there, does not allow it, or the disk gave an error.",
        "Mend the path or the permissions."),
}
# fmt: on
