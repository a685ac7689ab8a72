"""HCF-10xx: reading the document."""

from __future__ import annotations

from collections.abc import Mapping

# fmt: off
ROWS: Mapping[str, tuple[str, str, str]] = {
    "HCF-1001": ("the document is not UTF-8",
        "The file holds bytes that are no UTF-8, or starts with the mark of UTF-16 or UTF-32.",
        "Save the file as UTF-8. The message names the first byte at fault."),
    "HCF-1002": ("the document holds a control character",
        "A NUL or another unprintable character is in the file; half-written and binary files look like this.",
        "Remove the character at the place given, or write the file again."),
    "HCF-1003": ("the document is empty",
        ("The file has no content but white space and comments. An empty file is never taken as a wish to serve "
         "nothing: editors and copy tools leave one for a moment."),
        "Write a document. To serve no model on purpose, write `models: []` and `allow_empty: true`."),
    "HCF-1004": ("the document is too large",
        "The file, or the files of a directory together, are over 256 KiB, or aliases expand to over 50,000 values.",
        "A document holds settings only; check that the path names the right file."),
    "HCF-1005": ("the document is not valid YAML",
        "The text breaks a rule of YAML at the place given: indentation, a tab, a missing colon or quote.",
        "Mend the line, or the one before it. Quote text that holds `: `, ` #` or starts with one of `[{&*!|>%@`."),
    "HCF-1006": ("the same key stands twice",
        ("A mapping has the key twice, or two files of a directory say it, so one of the two values would be lost "
         "without a word. Only sections and the lists of models, devices and keys are put together."),
        "Keep one of them. The message gives both places."),
    "HCF-1007": ("a key that is not known",
        "No field of this name exists at this place; mostly a misspelling or a wrong indentation.",
        "Use the name the message suggests, or see docs/config.md for the fields of this level."),
    "HCF-1008": ("a value of the wrong type",
        ('The field takes another type. Types are strict: `"8000"` is no number, `1`, `yes` and `on` are no '
         "booleans, `010`, `0x10`, `1_000` and `1:30` are no numbers."),
        "Write what the message expects: plain decimal numbers, `true` or `false`, quoted text."),
    "HCF-1009": ("a value out of range or not among the choices",
        "The type is right and the value is not: too small, too large, or not one of the known words.",
        "Take a value the message names."),
    "HCF-1010": ("a required field is missing",
        "The document lacks a field that has no default.",
        "Add the field at the place given."),
    "HCF-1011": ("a key without a value",
        ("The key stands there with nothing behind it (or `null`). Absent, `false` and `0` are three things, and "
         "an empty value is mostly a template that was not filled in."),
        "Give a value, or remove the line to get the default."),
    "HCF-1012": ("the document is nested too deep",
        "Mappings and lists stand more than 32 levels inside each other; a document needs 6.",
        "Check the brackets and the indentation at the place given."),
    "HCF-1013": ("a feature of YAML that is not accepted",
        ("Custom tags (`!name`), merge keys (`<<`), keys that are no plain text and several documents in one file "
         "mean different things to different tools."),
        "Write the values out. Anchors and aliases (`&a`, `*a`) are accepted."),
    "HCF-1014": ("an environment variable that is not set",
        "A path names `${VARIABLE}` and the daemon's environment has no such variable, or it is empty.",
        ("Set it where the daemon starts (Environment= in the unit), or write the path out. `$${` stands for a "
         "plain `${`.")),
    "HCF-1015": ("the short and the full form are mixed",
        ("A document is one model at the top level (`model:`, `device:`, ...) or the full form (`apiVersion:`, "
         "`server:`, `models:`), never both."),
        ("Move the model's fields into an entry of `models:`, or remove the keys of the full form. `halogend check "
         "--print` shows any valid document in the full form.")),
    "HCF-1016": ("the apiVersion is missing or not known",
        "The full form names the version of its rules, so that a later release can tell old documents apart.",
        "Write `apiVersion: halogen.dev/v1alpha1` as the first line."),
    "HCF-1017": ("not available yet",
        ("The field or value is part of the document's language, and this release cannot honour it. It is refused, "
         "because a setting that is read and not obeyed is worse."),
        "Remove the field or take a value the message names."),
    "HCF-1018": ("out of scope",
        "The setting belongs to something halogend does not do.",
        "Remove it; the message says what to do in its place."),
    "HCF-1019": ("more problems than are shown",
        "The document has more than 200 problems; the first ones of the file are shown.",
        "Mend those first; many of the rest often have the same cause, such as a wrong file or indentation."),
}
# fmt: on
