import time
import jax
from musbo.data.dataset import assemble
from musbo.tasks.builtin import pointmass
from tests.algorithms.tiny import TINY, batch, true_return

def test_smoke():
    for seed in range(3):
        t=time.time()
        key = jax.random.PRNGKey(seed)
        state = TINY.begin(pointmass, key)
        print("start", true_return(state.policy), time.time()-t)
        batches = []
        for d in range(2):
            b = batch(TINY.actor(pointmass, state), 20, d)
            print('batch return', b.returns().mean())
            batches.append(b)
            data = assemble(batches, 2000, 0)
            old = None
            for state, m in TINY.train(pointmass, data, state, jax.random.fold_in(key, d+1)):
                if m["stage"] in ("check", "done"): print({k: v for k, v in m.items() if k!='imagined_per_member'})
                if m["stage"] in ("dynamics","labeler","start") and m["index"]%50==0: last=m; print(m["stage"], m["index"], m["error"])
                if m["stage"]!=old: print(m["stage"], time.time()-t); old=m["stage"]
            print(d, true_return(state.policy), time.time()-t)
    assert 0
