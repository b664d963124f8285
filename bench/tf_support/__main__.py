"""`make support`: run every cell and write `datasets/support.json`."""

from bench.tf_support.matrix import run, save
from worldsize.tf.support import RECORD

if __name__ == "__main__":
    matrix = run()
    save(matrix, RECORD)
    for (row, way), (outcome, words) in matrix.cells.items():
        print(f"{row:38} {way:16} {outcome:14} {words}")
