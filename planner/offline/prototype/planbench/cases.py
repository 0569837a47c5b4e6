"""Writes cases-CONDITION.json: the queries, and for each the tools that a blocker replaces (seed 42, as the run configs)."""
import json, sys, pathlib
sys.path.insert(0, 'src')
import types
try:
    import yaml
except ImportError:
    sys.modules['yaml'] = types.ModuleType('yaml')
import importlib.util
spec = importlib.util.spec_from_file_location('blocker', 'src/env/events/blocker.py')
blocker = importlib.util.module_from_spec(spec); sys.modules['blocker'] = blocker; spec.loader.exec_module(blocker)
D = pathlib.Path('src/data/retail')
load = lambda n: json.loads((D / n).read_text())
queries = load('queries.json'); catalog = load('paths_set_catalog.json'); tools = load('blocker_tools.json')
by = {(t['baseline_tool_name'], t['noise_type']): t['name'] for t in tools}
ALL = ["explicit failures", "implicit failures", "semantic misleading"]
CONDS = {
  'plain': None,
  'explicit': dict(noise_mode='fixed', fixed_noise_type=ALL[0], fixed_noise_types=None, obj='none'),
  'implicit': dict(noise_mode='fixed', fixed_noise_type=ALL[1], fixed_noise_types=None, obj='none'),
  'misleading': dict(noise_mode='fixed', fixed_noise_type=ALL[2], fixed_noise_types=None, obj='none'),
  'blocker': dict(noise_mode='fixed_multi', fixed_noise_type=None, fixed_noise_types=ALL, obj='none'),
  'long': dict(noise_mode='fixed_multi', fixed_noise_type=None, fixed_noise_types=ALL, obj='maximize'),
  'short': dict(noise_mode='fixed_multi', fixed_noise_type=None, fixed_noise_types=ALL, obj='minimize'),
}
for name, c in CONDS.items():
    reps = {}
    if c:
        reps = blocker.generate_blocker_replacements_by_task(
            paths_set_catalog=catalog, baseline_tools_path=D/'baseline_tools.json', tasks_path=D/'tasks.json',
            selection_mode='target_remaining_paths', block_n_per_task=None, target_remaining_paths=1,
            target_remaining_ratio=0.6, remaining_tolerance=1, min_remaining_paths=1,
            remaining_path_length_objective=c['obj'], blocking_edge_count_objective='none', seed=42,
            noise_mode=c['noise_mode'], fixed_noise_type=c['fixed_noise_type'], fixed_noise_types=c['fixed_noise_types'],
            multi_noise_count=1, max_combo_candidates=20000, max_cover_size=4)
    rows = []
    for q in queries:
        rep = reps.get(q['task_id'], {})
        blocked = {base: [e.get('blocker_tool_name') or by[(base, e['noise_type'])] for e in events] for base, events in rep.items()}
        rows.append(dict(id=q['query_id'], query=q['query_text'], answer=q['correct_answer'], target=q['target_datatype'], inputs=q['input_datatypes'], blocked=blocked))
    json.dump(rows, open(f'cases-{name}.json', 'w'))
    n = [len(r['blocked']) for r in rows]
    print(name, len(rows), 'blocked tools per query', sum(n)/len(n), 'without a blocker', sum(x == 0 for x in n))
