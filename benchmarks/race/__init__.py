"""Two servers of the System One API, one after the other, under the same load.

`python -m benchmarks.race 0.8B --workloads DIR --peer-wheels DIR --out DIR` runs our server and
flide 0.1.4 on a random checkpoint of a real shape; `python -m benchmarks.race.pack` collects what a
machine without a network needs for it.
"""
