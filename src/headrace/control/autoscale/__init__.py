"""How many replicas a model needs: a forecast beyond the start-up time, and a reaction.

`profile` and `trend` forecast, `policy` decides, `store` keeps the history, `scaler` joins them.
All but the store are pure: time comes in, in seconds since the epoch.
"""
