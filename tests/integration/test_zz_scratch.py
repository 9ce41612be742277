import os, time, json
from dataclasses import replace
import pytest
from glue_jobs.outcome import Memory
from glue_jobs.round import Round
from tests.integration.engine import trades

def tree():
    kids={}
    for p in os.listdir("/proc"):
        if p.isdigit():
            try: s=open(f"/proc/{p}/stat").read().rsplit(")",1)[1].split()
            except OSError: continue
            kids.setdefault(int(s[1]),[]).append((int(p),(int(s[11])+int(s[12])+int(s[13])+int(s[14]))/100, open(f"/proc/{p}/comm").read()))
    return kids
def cpu(stack_pids):
    kids=tree(); me=os.getpid(); total=sum(os.times()[:2]); todo=[me]
    while todo:
        for pid,t,comm in kids.get(todo.pop(),[]):
            if pid in stack_pids: continue
            total+=t; todo.append(pid)
    return total

@pytest.fixture(scope="session")
def others(stack):
    return {pid for pid,_,_ in tree().get(os.getpid(),[])}

@pytest.mark.parametrize("choice", ["columnar","rows","columnar","rows"])
def test_small(others, engine, choice):
    topic=engine.topic(partitions=2)
    target=engine.target(topic,engine=choice); memory=Memory()
    walls=[];stages=[]
    for n in range(22):
        for p in (0,1): engine.produce(topic, 200, partition=p)
        if n==7: c=cpu(others); told=0
        t=time.time(); out=Round(target,memory).run(); 
        if n>=7: walls.append(time.time()-t); stages.append(out.metrics["stage_ms"]); told+=out.metrics["cpu_s"]
    walls.sort(); stages.sort()
    print(f"\nSMALL {choice}: round wall median {walls[7]*1e3:.0f} ms, stage {stages[7]} ms, cpu/round incl producing {(cpu(others)-c)/15:.3f} s, told {told/15:.3f}")

@pytest.mark.parametrize("choice", ["columnar","rows","columnar"])
def test_large(others, engine, choice):
    global TOPIC
    if "TOPIC" not in globals():
        sch={"type":"record","name":"Trade","fields":[{"name":"trade_id","type":"long"},{"name":"side","type":"string"},{"name":"quantity","type":"int"},{"name":"symbol","type":"string"},{"name":"price","type":"int"},{"name":"account","type":"string"},{"name":"userid","type":"string"},{"name":"ts","type":{"type":"long","logicalType":"timestamp-millis"}}]}
        TOPIC=engine.topic(partitions=6,schema=json.dumps(sch))
        vals=[engine.encode(TOPIC,{"trade_id":i*7919,"side":"BUY" if i%2 else "SELL","quantity":i*37%5000,"symbol":["ZVZZT","ZXZZT","ZBZX"][i%3],"price":i*31%1000,"account":["ABC123","LMN456","XYZ789"][i%3],"userid":f"User_{i%9}","ts":1700000000000+i}) for i in range(20000)]
        N=int(os.environ.get("N","1500000"))
        from confluent_kafka import Producer
        pr=Producer({"bootstrap.servers":engine.stack.bootstrap_servers,"linger.ms":50,"batch.size":1000000,"compression.type":"lz4","queue.buffering.max.messages":1000000})
        for i in range(N):
            while True:
                try: pr.produce(TOPIC,vals[i%20000],partition=i%6); break
                except BufferError: pr.poll(0.1)
            if i%10000==0: pr.poll(0)
        pr.flush()
    target=engine.target(TOPIC,table=f"{TOPIC}_{choice}_{time.time_ns()}",engine=choice,flush_bytes=10**9,partition_flush_bytes=10**9)
    memory=Memory(bytes_per_record=55.0)
    c=cpu(others); t=time.time()
    outs=engine.drain(target,memory=memory)
    n=sum(o.ledger.consumed for o in outs); used=cpu(others)-c
    print(f"\nLARGE {choice}: {n} records, {len(outs)} rounds, wall {time.time()-t:.2f}, cpu {used:.2f}, k/cpu-s {n/used/1e3:.0f}, files {sum(o.metrics['files'] for o in outs)}, B/row {sum(o.metrics['file_bytes'] for o in outs)/n:.2f}, told {sum(o.metrics['cpu_s'] for o in outs):.2f} stage_ms {[o.metrics['stage_ms'] for o in outs]}")
