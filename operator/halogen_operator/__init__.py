"""The Kubernetes operator: keeps pods of halogend as HalogenModel objects say.

Owns what stands in a cluster: manifests, status, events, and when which pod is handed its document. It speaks to a
daemon over its admin API alone, and must never know engines, torch or how a daemon applies what it was handed.
"""
