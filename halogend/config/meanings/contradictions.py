"""HCF-11xx and HCF-12xx: contradictions inside the document, and with files and devices."""

from __future__ import annotations

from collections.abc import Mapping

# fmt: off
ROWS: Mapping[str, tuple[str, str, str]] = {
    "HCF-1101": ("the document holds no model",
        "`models` is absent or empty, so the daemon would end everything it serves.",
        "Add a model, or write `allow_empty: true` if that is what you want."),
    "HCF-1102": ("two models have the same name",
        "A model's name is its identity from one edit to the next and must be its own.",
        "Rename one. Models that share traffic share an entry in `aliases`, not a name."),
    "HCF-1103": ("an alias clashes with a name",
        "An alias equals a model's name or stands twice in one model, so a request could mean either.",
        "Remove or rename the alias. Two models may share an alias; then traffic is split by `weight`."),
    "HCF-1104": ("an alias that no model takes traffic for",
        "Every model with this alias has `weight: 0`, so each of its requests would wait in vain.",
        "Give at least one of them a weight above 0, or remove the alias."),
    "HCF-1105": ("one thing is set in two ways",
        ("Two fields that exclude each other are both given, such as `kv_cache_ratio` and `kv_cache_bytes`, or "
         "`flash_attention` at the top of the model and in `kernels`."),
        "Keep one of them."),
    "HCF-1106": ("the KV shares of a device are over 1",
        ("`kv_cache_ratio` is a share of what a device has left for KV memory; the models on it ask for more than "
         "all of it, or leave nothing to a model without a ratio."),
        "Lower the ratios. Models without one share what is left, 0.75 at most."),
    "HCF-1107": ("the KV memory asked for is over the device's memory",
        "The `kv_cache_bytes` of the models on a device are more than its `memory` less its `reserve`.",
        "Lower `kv_cache_bytes`, raise `memory`, or move a model to another device."),
    "HCF-1108": ("two timeouts contradict each other",
        ("`request_timeout_ms` counts from the arrival of a request; not longer than `queue_timeout_ms`, it would "
         "end requests that are still allowed to wait. Under `strategy: replace` requests wait for as long as the old "
         "generation drains; with `drain_timeout_s` over `queue_timeout_ms` they would be refused before it is over."),
        ("Make `request_timeout_ms` longer than `queue_timeout_ms`, or 0 to switch it off; under `replace` make "
         "`queue_timeout_ms` longer than the drain and the load together.")),
    "HCF-1109": ("two length limits contradict each other",
        "`max_model_len` bounds prompt and answer together; `max_prompt_len` and `max_decode_len` promise more.",
        "Lower the two until their sum is at most `max_model_len`, or raise `max_model_len`."),
    "HCF-1110": ("a listener beyond this machine without keys",
        ("`host` is no loopback address, so anybody who reaches the port could use the models; or `auth.infer: none` "
         "says that this is meant, and a key of the list is for inference all the same."),
        ("Bind 127.0.0.1, list API keys under `auth`, or write `auth: none` to state that open access is meant (behind "
         "a proxy that checks keys).")),
    "HCF-1111": ("a list of devices that cannot be used",
        ("A list of devices names each one once; `auto` lets the daemon choose and stands alone. Several devices "
         "need `exec_mode: data_parallel`, which gives each a copy of the model and needs to be told where. All copies "
         "hold their weights in one way: processors and accelerators do not share a model."),
        "Name each device once, all of one kind, and set exec_mode where there are several."),
    "HCF-1112": ("a device's reserve is not below its memory",
        "`reserve` is taken off `memory`; nothing would be left for models.",
        "Lower `reserve` or raise `memory`."),
    "HCF-1113": ("an admin listener on TCP lacks TLS or a key",
        ("Whoever reaches the admin listener can change what is served. On TCP it needs a certificate (`admin_tls`, or "
         "`tls` for both listeners) and at least one key with the scope `admin`; a unix socket needs neither."),
        "Add what the message names, or take `unix:` and a path."),
    "HCF-1114": ("two API keys share a name, a file or a value",
        ("A key's name is what receipts and logs call it, and its value decides which key a request came with; both "
         "must be its own."),
        "Rename one, or give it a file and a value of its own. One key may have several scopes."),
    "HCF-1115": ("two listeners on one address",
        "`admin` and the inference listener would share a port.",
        "Take another port for one of them."),
    "HCF-1120": ("the cores of a device cannot be its own",
        ("Two entries of `devices` name the same core, or neither says which cores it has, or a core is not there, "
         "or a device that is no processor names some."),
        "Give each `cpu:N` cores of its own, of those the message names."),
    "HCF-1121": ("a model names a device that is kept spare",
        ("A spare device holds the new generation of a model whose own device has no room for both, and must be empty "
         "for that."),
        "Name another device, or remove `spare`."),
    "HCF-1125": ("a strategy that this kind of model has no use for",
        ("`shrink` takes memory from the one pool of a model on one device; `rolling` goes from replica to replica of "
         "a data-parallel one."),
        "Take `auto`, or the strategy that the message names. A model's own `reload` overrides the document's."),
    "HCF-1122": ("a processor has no temperature limit",
        "`thermal` limits accelerators, whose drivers tell how hot they are; nothing would be limited here.",
        "Remove the line, or name an accelerator."),
    "HCF-1124": ("a probation without a generation to go back to",
        ("`probation` keeps the generation before until the new one has proved itself; `strategy: replace` ends it "
         "before the new one is loaded."),
        "Take another strategy, or write `probation: off`."),
    "HCF-1130": ("the watermarks contradict each other",
        ("Above `soft` admission gets choosy, above `hard` it stops; with `soft` at or over `hard` the first could "
         "never be."),
        "Lower `soft`, raise `hard`, or write `watermarks: off`."),
    "HCF-1131": ("a class that nothing heeds or nobody has",
        ("`eviction.sessions` names a class twice, or has classes while `eviction.policy` heeds none; or an API key "
         "may name a class that no model has, so that each of its requests would be refused."),
        ("Write `policy: priority_lru`, keep one entry for each class, and name in `classes` of a key what models "
         "have.")),
    "HCF-1132": ("what may be pinned leaves requests no room",
        ("Pinned blocks count as used. When all classes have taken their `pin_quota`, use would be at the hard "
         "watermark with nothing running, and with anything running nothing more would be admitted."),
        "Lower the quotas until their sum is well below `watermarks.hard` less `kv_block_pool.min_free_ratio`."),
    "HCF-1133": ("the bounds of the KV pool contradict each other",
        ("`kv_block_pool.min_tokens` and `max_tokens` bound a pool that must hold one request of `max_model_len` and "
         "lie within what `kv_cache_ratio` or `kv_cache_bytes` allow."),
        "Lower `min_tokens`, raise `max_tokens` or the share of memory, or lower `max_model_len`."),
    "HCF-1134": ("the long lane is wider than the batch",
        "`long_prompt.max_concurrent` over `max_batch` would let long prompts take every place.",
        "Lower it; what long prompts take, short ones wait for."),
    "HCF-1135": ("kernels that do not run there",
        ("`kernels.backend` cpu and reference run on processors, triton on accelerators (and on a processor in an "
         "interpreter, to compare with); triton has no attention but the fused one. `precision` fp16 and fp8 and "
         "`kv_cache_dtype` fp8 and int8 are formats of triton's kernels, which keep keys and values in these or in "
         "what products are in. With `device: auto` that counts which the machine has: the first accelerator, else the "
         "processor."),
        "Write `backend: auto`, which is what the device has, leave `flash_attention` on, and name the device."),
    "HCF-1201": ("the device is not there",
        "The document names a device this machine does not have, or that its driver does not show.",
        "Take one of the devices the message names. `halogend check --target DEVICE` checks for another machine."),
    "HCF-1202": ("a length limit is over the model's own",
        "The model was trained for a context of a given length; beyond it answers are noise.",
        "Lower the field to the limit in the message, or remove it to take the model's."),
    "HCF-1203": ("the weights do not fit the device",
        "Weights and working memory of the models on the device are more than its memory less its reserve.",
        "Take a smaller or stronger quantised model, another device, or raise the device's `memory`."),
    "HCF-1204": ("one full request does not fit the KV pool",
        ("A request of `max_model_len` tokens needs more KV memory than the model's pool may have, so it could "
         "never run."),
        "Lower `max_model_len`, raise `kv_cache_ratio` or `kv_cache_bytes`, or choose a smaller `kv_cache_dtype`."),
    "HCF-1205": ("the chat template cannot be read",
        "`chat_template` names a file that is not there or cannot be read, or a built-in name that is not known.",
        "Mend the path, or remove the field to take the model's own template."),
    "HCF-1206": ("an API key's file cannot be used",
        ("The file is missing, unreadable, empty, too large, or holds something that is no key. A key that is named "
         "and not there never means open access. What was active stays active."),
        ("Write the key, and nothing else, into the file: at most 4096 visible ASCII characters on one line, such as "
         "from `openssl rand -hex 32`.")),
    "HCF-1207": ("a certificate or its private key cannot be used",
        ("The file is missing or unreadable, is no PEM, the key is not the certificate's or has a pass phrase, or the "
         "certificate is not valid now. What was active stays active."),
        ("Name a PEM certificate that is valid now, its chain behind it, and its own key without a pass phrase. A file "
         "that is put right is noticed by itself.")),
    "HCF-1208": ("a checkpoint without digests cannot be checked in full",
        "`load.verify: full` compares every byte with the digests of a v2 checkpoint; other formats carry none.",
        "Convert the model to v2 (`halogend convert`), or leave `load.verify` at header."),
    "HCF-1210": ("the devices ask for more memory than the host has",
        "Several `cpu:N` divide the memory of one host; the sizes that are stated are more than that, or leave none.",
        "Lower `memory` of some, or leave it out: what the others leave is shared by cores."),
    "HCF-1211": ("no engine can run on the device",
        ("The device is there, and something that an engine needs on it is not: a build of torch for its maker, "
         "arithmetic its kernels are written in, or the whole of it."),
        ("Install what the message names (`pip install` a build of torch with CUDA or ROCm), or take another "
         "device; `halogend status` lists them.")),
}
# fmt: on
