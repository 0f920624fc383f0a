"""Reports: one value (report.py), which a terminal (terminal.py), a page (page.py) and JSON render.

    report = build_replay_report(study)
    terminal.print_report(report, console)          needs rich (extra `cli`)
    page.build_page(report)
    svg.render_png(page.draw_picture(report))       needs resvg (extra `report`)

figures.py formats numbers and shortens names, wording.py writes sentences; charts.py draws with svg.py, which has the
colours too; page.html, page.css and page.js are the page around the charts.
"""
