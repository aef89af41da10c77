"""What engines tell of their prefix caches (KV events), brought into the prefix table.

An event names blocks by hashes of token ids, the table names them by hashes of text. The tokens are
in the event, so their text is too: `vocabulary` spells it, `template` takes the chat template off
again, `chains` keeps what belongs to which block. Nothing of that is on a request's path.
"""
