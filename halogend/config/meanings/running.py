"""HRT-1xxx: the running daemon."""

from __future__ import annotations

from collections.abc import Mapping

# fmt: off
ROWS: Mapping[str, tuple[str, str, str]] = {
    "HRT-1001": ("an engine died",
        ("The engine's process ended without being asked: killed by the kernel for memory, by a signal, or by a "
         "bug. Its running requests got an error; it is restarted with back-off."),
        "See the exit status and the last lines of its log in `halogend status` and the receipt."),
    "HRT-1002": ("an engine dies again and again",
        "The engine died too often in a short time and is no longer restarted.",
        "Read the last lines of its log in `halogend status`, mend the cause, then `halogend reload`."),
    "HRT-1003": ("a load made no progress",
        ("No tensor was loaded and no kernel compiled for `load.progress_timeout_s`; slow loads that move are "
         "never cut."),
        "Check the disk or network file system the model lies on, or raise `load.progress_timeout_s`."),
    "HRT-1004": ("old and new model do not fit in memory together",
        ("A swap without a gap needs weights, working memory and the smallest KV pool of the new model beside the "
         "old one. The device has no room for that, no spare or idle one has, and the old pool cannot give enough."),
        ("Lower `kv_cache_ratio`, free memory, take a smaller model, keep a device spare, or allow a gap with "
         "`reload: {strategy: replace}`.")),
    "HRT-1005": ("the chat template does not finish",
        "Rendering the template took more time or output than allowed; it loops, or grows without end.",
        "Mend the template's loops, or remove `chat_template` to take the model's own."),
    "HRT-1006": ("the chat template is not valid",
        "The template has a syntax error, uses what is not allowed, or failed when it was tried.",
        "Mend the template at the line given, or remove `chat_template` to take the model's own."),
    "HRT-1007": ("a file changed under a running model",
        ("A restart found another file than the one the model was planned with, and does not pass off other "
         "weights as the same."),
        "`halogend reload` takes the files as they are now; or put the old file back."),
    "HRT-1008": ("the port is taken",
        "Another program listens on the address and port of `server`.",
        "Find it with `ss -ltnp`, end it, or choose another `port`."),
    "HRT-1009": ("the listener's address cannot be used",
        ("`host` is no address of this machine or a name that does not resolve, or the port needs rights the "
         "daemon does not have (below 1024)."),
        "Take an address of this machine (`ip addr`), 127.0.0.1 or 0.0.0.0, and a port of 1024 or above."),
    "HRT-1010": ("a model did not start",
        "One of the model's processes ended or gave up before it was ready.",
        "The message and the last lines of its log say why."),
    "HRT-1011": ("an engine stopped making progress",
        "The engine had work and its progress counter stood still; it was killed and is restarted.",
        "If it comes again: check the host for stalls (swap, throttling) and report it with the log."),
    "HRT-1012": ("the admin socket cannot be used",
        "Another daemon listens on the path, its folder does not exist, or the user may not write there.",
        "End the other daemon, or name another path in `server.admin`."),
    "HRT-1013": ("a text process died",
        "The process that turns text into tokens and back ended without being asked; it is restarted.",
        "See the exit status and the last lines of its log in `halogend status`."),
    "HRT-1014": ("two parts of different releases met",
        "A child process speaks another version of the messages: the package was replaced under a running daemon.",
        "Restart the daemon."),
    "HRT-1015": ("a running model refused a live change",
        "One of the model's processes could not take the new values; the old ones are in force.",
        "The message says which value and why."),
    "HRT-1016": ("memory ran out",
        "An allocation failed while the model loaded or served.",
        ("Lower `kv_cache_ratio` or `max_batch`, set `memory` of the device to what it may really use, or take a "
         "smaller model.")),
    "HRT-1017": ("the document's file cannot be read",
        "The file is not there or the daemon's user may not read it. What was active stays active.",
        "Put the file back or mend its permissions; a change on disk is noticed by itself."),
    "HRT-1018": ("changes are held",
        ("Somebody froze the triggers with `halogend hold`: an edit of the file, SIGHUP and a plain `halogend reload` "
         "change nothing until they are freed."),
        ("`halogend resume` frees them and applies what was put off; `halogend reload --force` applies the source "
         "once.")),
    "HRT-1019": ("the daemon ended before this change did",
        "The receipt was still open when the daemon stopped, was killed, or lost power.",
        "The daemon that came after read its source anew; `halogend receipts` shows what came of it."),
    "HRT-1020": ("the service manager's socket is another one",
        ("With socket activation the service manager opens the inference listener's socket and keeps it through "
         "restarts. The one it handed over has another address than `server`, or is no TCP socket that listens."),
        ("Make `host` and `port` and the `ListenStream=` lines of halogend.socket say the same; after a change there: "
         "`systemctl daemon-reload`, then restart halogend.socket and halogend.service.")),
    "HRT-1102": ("kernel not found for op",
        ("A kernel that the model needs on its device is not in `kernels.cache_dir`, and `kernels.compile: never` "
         "allows no compiling. The model does not load; what served before serves on."),
        ("`halogend warmup-kernel --target NAME --cache-dir DIR` compiles all of them, on any machine with the same "
         "halogend and Triton; mount DIR and name it in `kernels.cache_dir`. Or `run --warmup-kernel`, or "
         "`kernels.compile: auto`.")),
}
# fmt: on
