"""Samples as tables (text and Markdown), beside their targets, and as a chart."""
import pathlib
import statistics

# member of a sample: title, digits, whether the spread is shown
COLUMNS = {
    "rate": ("requests/s", 0, True),
    "cpu": ("CPU us/req", 1, True),
    "user": ("user", 1, False),
    "system": ("system", 1, False),
    "p50": ("p50 ms", 2, False),
    "p99": ("p99 ms", 2, False),
    "added50": ("added p50", 2, True),
    "added99": ("added p99", 2, True),
    "answered": ("answered", 0, False),
    "inside": ("s until all in flight", 2, False),
    "back": ("s until all answered", 2, False),
    "idle": ("CPU % while waiting", 2, False),
    "held": ("memory MiB while waiting", 1, False),
    "own": ("peak of own memory MiB", 1, False),
    "rss": ("peak RSS MiB", 1, False),
    "bytes": ("bytes of file a key", 1, False),
    "ready": ("ready ms", 0, False),
    "load": ("load's core %", 0, False),
    "worker": ("each worker's core %", 1, False),
    "others": ("its other threads' %", 1, False),
    "spare": ("idle, % of a core", 0, False),
}

# scenario, peer, member, other peer (None: the figure itself), at least or at most, bound (a word: see `bounds`)
TARGETS = [
    ("same", "fencegate drops", "rate", "nginx", ">=", 0.8),
    ("same", "fencegate drops", "cpu", "nginx", "<=", 1.4),
    ("same", "fencegate effects", "rate", "nginx+lua+redis effects", ">=", 1.2),
    ("same", "fencegate effects", "cpu", "nginx+lua+redis effects", "<=", 0.8),
    ("rise", "fencegate effects", "rate", "nginx+lua+redis effects", ">=", 1.5),
    ("rise", "fencegate effects", "cpu", "nginx+lua+redis effects", "<=", 0.7),
    ("stale", "fencegate drops", "rate", "nginx+lua+redis drops", ">=", 2),
    ("stale", "fencegate drops", "cpu", "nginx+lua+redis drops", "<=", 0.4),
    ("rate", "fencegate drops", "added50", None, "<=", 0.3),
    ("rate", "fencegate drops", "added99", None, "<=", 2),
    ("rate", "fencegate effects", "added50", None, "<=", "sync + 0.5"),
    ("waiting", "fencegate drops", "answered", None, ">=", "all calls"),
    ("waiting", "fencegate drops", "own", None, "<=", 200),
    ("waiting", "fencegate drops", "idle", None, "<=", 1),
    ("waiting", "fencegate effects", "answered", None, ">=", "all calls"),
    ("waiting", "fencegate effects", "own", None, "<=", 200),
    ("waiting", "fencegate effects", "idle", None, "<=", 1),
    ("keys", "10,000,000 keys", "rate", "1,000 keys", ">=", 0.8),
    ("keys", "10,000,000 keys", "bytes", None, "<=", 120),
    ("keys", "10,000,000 keys", "ready", None, "<=", 1000),
    ("workers", "fencegate drops, 2 workers", "worker", None, ">=", "its share"),  # below: they were not fed
    ("workers", "fencegate effects, 2 workers", "worker", None, ">=", "its share"),
    ("workers", "fencegate drops, 2 workers", "rate", "fencegate drops, 1 worker", ">=", 1.6),
    ("workers", "fencegate effects, 2 workers", "rate", "fencegate effects, 1 worker", ">=", 1.6),
]


def median(rounds, member):
    return statistics.median(sample[member] for sample in rounds)


def number(value, digits):
    return f"{value:,.{digits}f}"


def cell(rounds, member):
    _, digits, spread = COLUMNS[member]
    if member not in rounds[0]:
        return ""
    text = number(median(rounds, member), digits)
    if spread and len(rounds) > 1:
        values = [sample[member] for sample in rounds]
        text += f" ({number(min(values), digits)} to {number(max(values), digits)})"
    return text


def table(samples):
    """Rows of cells, the first one the head."""
    members = [member for member in COLUMNS if any(member in rounds[0] for rounds in samples.values())]
    return [[""] + [COLUMNS[member][0] for member in members]] + [
        [name] + [cell(rounds, member) for member in members] for name, rounds in samples.items()]


def as_text(rows):
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(text.ljust(width) if column == 0 else text.rjust(width)
                               for column, (text, width) in enumerate(zip(row, widths))).rstrip() for row in rows)


def as_markdown(rows):
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "| --- |" + " ---: |" * (len(rows[0]) - 1)] + body)


def targets(results, bounds):
    """Rows: what, figure, target, met. A ratio is the median of the rounds' own ratios: both sides of each were
    measured within some seconds. `bounds`: those that only the run knows, by their words."""
    rows = [["target", "figure", "bound", ""]]
    for scenario, peer, member, other, relation, bound in TARGETS:
        rounds = results.get(scenario, {}).get(peer)
        if not rounds:
            continue
        title = COLUMNS[member][0]
        if other:
            pairs = zip(rounds, results[scenario][other])
            figure = statistics.median(here[member] / there[member] for here, there in pairs)
            what = f"{scenario}: {title}, {peer} / {other}"
        else:
            figure, what = median(rounds, member), f"{scenario}: {title}, {peer}"
        limit = bounds.get(bound, bound)
        met = figure >= limit if relation == ">=" else figure <= limit
        rows.append([what, number(figure, 2), f"{relation} {number(limit, 2)}", "met" if met else "missed"])
    return rows


def chart(results, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [name for name in ("same", "rise", "stale", "tls") if name in results]
    if not shown:
        return
    heights = [len(results[name]) + 1.5 for name in shown]
    figure, axes = pyplot.subplots(len(shown), 2, figsize=(12, 0.42 * sum(heights) + 1), squeeze=False,
                                   gridspec_kw={"height_ratios": heights})
    for (left, right), name in zip(axes, shown):
        peers = list(results[name])[::-1]
        colours = ["tab:blue" if peer.startswith("fencegate") else "tab:gray" for peer in peers]
        rates = [median(results[name][peer], "rate") for peer in peers]
        spread = [[rate - min(s["rate"] for s in results[name][peer]) for peer, rate in zip(peers, rates)],
                  [max(s["rate"] for s in results[name][peer]) - rate for peer, rate in zip(peers, rates)]]
        left.barh(peers, rates, xerr=spread, color=colours, error_kw={"ecolor": "black", "elinewidth": 0.8})
        left.set_title(f"{name}: requests a second (median, lowest and highest round)", fontsize=9)
        user = [median(results[name][peer], "user") for peer in peers]
        system = [median(results[name][peer], "system") for peer in peers]
        right.barh(peers, user, color=colours, label="user")
        right.barh(peers, system, left=user, color=colours, alpha=0.5, label="system")
        right.set_title(f"{name}: CPU us per request, user (dark) and system (light)", fontsize=9)
        right.set_yticks([])
        for axis in (left, right):
            axis.tick_params(labelsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def write(folder, titles, results, about, bounds):
    """report.txt, report.md and report.png; returns the text."""
    folder = pathlib.Path(folder)
    text, markdown = list(about), [f"- {line}" for line in about]
    for name, samples in results.items():
        rows = table(samples)
        text += ["", f"{name}: {titles[name]}", as_text(rows)]
        markdown += ["", f"**{name}**: {titles[name]}", "", as_markdown(rows)]
    rows = targets(results, bounds)
    if len(rows) > 1:
        text += ["", as_text(rows)]
        markdown += ["", as_markdown(rows)]
    (folder / "report.txt").write_text("\n".join(text) + "\n")
    (folder / "report.md").write_text("\n".join(markdown) + "\n")
    chart(results, folder / "report.png")
    return "\n".join(text)
