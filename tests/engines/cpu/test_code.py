from tenferro.engines.cpu.code import Code


def test_a_block_computes_a_value_once():
    code = Code()
    assert code.mul("%x", 4) == code.mul("%x", 4)
    assert code.at("%a", code.add("%i", 1)) == code.at("%a", code.add("%i", 1))
    assert code.word("%P", 3) == code.word("%P", 3)
    assert len(code.lines) == 5


def test_another_block_computes_it_anew():
    code = Code()
    first = code.mul("%x", 4)
    code.jump("next")
    code.start("next")
    assert code.mul("%x", 4) != first


def test_what_reads_memory_is_done_each_time():
    code = Code()
    assert code.word("%data", 3) != code.word("%data", 3)
    assert code.emit("load i64, ptr %data, align 8") != code.emit("load i64, ptr %data, align 8")
    assert code.emit("call i64 @f(i64 %x)") != code.emit("call i64 @f(i64 %x)")


def test_numbers_are_computed_here():
    code = Code()
    assert (code.mul(16, "1024"), code.add("3", 4), code.mul(0, "%x"), code.add("%x", 0)) == ("16384", "7", "0", "%x")
    assert code.lines == []


def test_halving_visits_pairs_of_a_tree():
    code = Code()
    code.halving(8, lambda k, half: code.do(f"; {k} {half}"))
    text = code.function("define void @f()")
    assert "phi i64 [ 4, %entry ]" in text and text.count("lshr") == 1
