def write_report(out):
    pass
