"""Glue as its public launch logs show it, and as unkind as its documentation allows."""
