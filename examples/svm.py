"""Choose the margins of a support vector machine by a validation set, and see which samples it forgives.

    python examples/svm.py

Three measurements of scikit-learn's breast cancer data, in which the classes overlap, so the answer is a proved global
optimum. A grid search over C for LinearSVC, on the same samples, stands beside it.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from blocc.svm import BilevelSVC

COLUMNS = [0, 1, 4]  # mean radius, mean texture, mean smoothness


def main() -> None:
    data = load_breast_cancer()
    X, X_test, y, y_test = train_test_split(data.data[:, COLUMNS], data.target, test_size=0.3, random_state=0)
    model = make_pipeline(StandardScaler(), BilevelSVC()).fit(X, y)
    machine = model[-1]
    print(machine.result_)
    for name, weight in zip(data.feature_names[COLUMNS], machine.coef_[0], strict=True):
        print(f"  {name:<16} {weight:+.3f}")
    print(f"test accuracy {model.score(X_test, y_test):.3f}")
    print("most forgiven:")
    margins = dict(zip(machine.training_indices_, machine.margins_, strict=True))
    for index in machine.most_forgiven(3):
        print(f"  sample {index}: {data.target_names[y[index]]}, forgiven {margins[index]:.2f}")
    search = GridSearchCV(make_pipeline(StandardScaler(), LinearSVC()), {"linearsvc__C": np.logspace(-3, 3, 7)})
    print(f"LinearSVC with C by grid search: test accuracy {search.fit(X, y).score(X_test, y_test):.3f}")


if __name__ == "__main__":
    main()
