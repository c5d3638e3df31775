"""Every operation, on the communicator of all and on pairs that communicate unequally often."""

import ranks
import torch
import torch.distributed as dist

ROUNDS = 10


def main():
    # With a device, groups are split from the communicator of all.
    n = ranks.begin(device_id=torch.device("cuda:0"))
    pairs = [dist.new_group([first, first + 1]) for first in range(0, n, 2)]
    mine = pairs[ranks.RANK // 2]
    x, y = torch.ones(1 << 18, device="cuda"), torch.ones(n << 18, device="cuda")
    for _ in range(ROUNDS):
        for _ in range(1 + ranks.RANK // 2):
            dist.all_reduce(x[:1000], group=mine)
        dist.all_reduce(x)
        dist.all_gather_into_tensor(y, x)
        dist.reduce_scatter_tensor(x, y)
        dist.broadcast(x, 1)
        dist.reduce(x, 0)
        dist.all_to_all_single(y, y.clone())
        sends = dist.P2POp(dist.isend, x, (ranks.RANK + 1) % n)
        receives = dist.P2POp(dist.irecv, x.clone(), (ranks.RANK - 1) % n)
        for request in dist.batch_isend_irecv([sends, receives]):
            request.wait()
        with dist._coalescing_manager(device=torch.device("cuda:0"), async_ops=True) as both:
            dist.all_reduce(x[:100])
            dist.all_reduce(x[100:300])
        both.wait()
    torch.cuda.synchronize()
    pair = ranks.RANK // 2
    ranks.say({"operations": {"pair": [pair, (1 + pair) * ROUNDS], "all": 8 * ROUNDS}})
    ranks.end()


main()
