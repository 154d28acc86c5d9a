r"""A support vector machine that forgives.

Which training samples should a classifier be allowed to get wrong?

| | decides | wants | bound by |
| --- | --- | --- | --- |
| leader | how much each training sample is forgiven, $c_i \ge 0$ | a small loss on validation samples, little forgiven | |
| follower | the separating plane $(w, b)$ | the widest street | every sample on its side, up to $c_i$ |

$$
\min_{c \ge 0} \; \sum_{j} e^{1 - l_j (z_j^\top w + b)} + 10 \sum_i c_i
\quad \text{where } (w, b) \text{ minimises } \tfrac12 \|w\|^2 \text{ over } l_i (z_i^\top w + b) \ge 1 - c_i
$$
"""

# %%
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from blocc.svm import BilevelSVC

data = load_breast_cancer()
X, X_test, y, y_test = train_test_split(data.data[:, [0, 1, 4]], data.target, test_size=0.3, random_state=0)
model = make_pipeline(StandardScaler(), BilevelSVC()).fit(X, y)
machine = model[-1]
print(machine.result_)
print("proved global:", machine.is_global_)

# %% Check
# CVXPY solves the follower's problem once more, at the returned margins: its plane must be the same, and so must the
# leader's value there. Beside it, a grid search over C for scikit-learn's own linear machine, on the same samples.
import cvxpy as cp
import numpy as np
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC

Z, labels = model[0].transform(X), np.where(y == machine.classes_[1], 1, -1)
train, validate = machine.training_indices_, machine.validation_indices_
w, b = cp.Variable(3), cp.Variable()
street = [cp.multiply(labels[train], Z[train] @ w + b) >= 1 - machine.margins_]
cp.Problem(cp.Minimize(cp.sum_squares(w) / 2), street).solve()
found = np.append(w.value, b.value)
value = np.exp(1 - labels[validate] * (Z[validate] @ w.value + b.value)).sum() + 10 * machine.margins_.sum()
print(f"plane by CVXPY {np.round(found, 3)}, by blocc {np.round(machine.result_.y, 3)}")
print(f"the leader's value by CVXPY {value:.3f}, by blocc {machine.result_.upper_value:.3f}")
assert np.allclose(found, machine.result_.y, atol=1e-3)
assert abs(value - machine.result_.upper_value) < 1e-3 * value

search = GridSearchCV(make_pipeline(StandardScaler(), LinearSVC()), {"linearsvc__C": np.logspace(-3, 3, 7)}).fit(X, y)
print(f"test accuracy: blocc {model.score(X_test, y_test):.3f}, grid search {search.score(X_test, y_test):.3f}")

# %% Picture
# Training samples by radius and texture; the more a sample is forgiven, the larger its mark. The large ones lie where the classes overlap.
from matplotlib.figure import Figure

figure = Figure(figsize=(8, 5), layout="constrained")
axes = figure.subplots()
forgiven = np.zeros(len(y))
forgiven[machine.training_indices_] = machine.margins_
for label, colour, marker in ((0, "#C8102E", "^"), (1, "#0072B2", "o")):
    chosen = y == label
    axes.scatter(
        X[chosen, 0],
        X[chosen, 1],
        s=8 + 60 * forgiven[chosen],
        color=colour,
        marker=marker,
        alpha=0.5,
        label=data.target_names[label],
    )
axes.set(xlabel="mean radius", ylabel="mean texture", title="The larger, the more forgiven")
axes.legend(frameon=False)

# %% What breaks
# The proof of a global optimum needs classes that overlap. With all thirty measurements a plane separates them, no
# sample needs to be forgiven, and the answer is still certified but only local.
separated = make_pipeline(StandardScaler(), BilevelSVC()).fit(data.data, data.target)[-1]
print(separated.result_.status.value, "; proved global:", separated.is_global_)
