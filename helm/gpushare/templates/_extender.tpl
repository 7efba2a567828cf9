{{/* The extender's container, beside kube-scheduler or alone. */}}

{{- define "gpushare.extenderContainer" -}}
{{- $extender := .Values.extender -}}
{{- $second := include "gpushare.second" . -}}
name: extender
image: {{ include "gpushare.image" (list . $extender.image) }}
imagePullPolicy: {{ $extender.image.pullPolicy }}
args:
  {{- if $second }}
  # Who reaches it can bind pods: nobody but the scheduler beside it may.
  - --host=127.0.0.1
  {{- else }}
  - --host=0.0.0.0
  # Until every node knows that it is gone.
  - --drain-seconds=5
  {{- end }}
  # A bind that the scheduler has given up must not still happen.
  - --bind-deadline={{ mulf 0.8 $extender.httpTimeoutSeconds }}
  {{- include "gpushare.extenderFlags" . | nindent 2 }}
  {{- with $extender.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if not $second }}
ports:
  - name: http
    containerPort: {{ $extender.port }}
    protocol: TCP
{{- end }}
resources:
  {{- include "gpushare.resources" $extender.resources | trim | nindent 2 }}
securityContext:
  {{- include "gpushare.restrictedContainer" . | nindent 2 }}
{{ include "gpushare.extenderProbes" (list . (empty $second | ternary "gpushare.httpProbe" "gpushare.localProbe")) }}
{{- end -}}

{{/* What every process of the extender's image is told. */}}
{{- define "gpushare.extenderFlags" -}}
- --port={{ .Values.extender.port }}
- --log-level={{ .Values.extender.logLevel }}
- --policy={{ .Values.extender.policy }}
- --topology-policy={{ .Values.extender.topologyPolicy }}
- --domain={{ .Values.resourceDomain }}
- --annotation-prefix={{ .Values.annotationPrefix }}
{{- end -}}

{{/* The three probes, asked in one of the two ways below: (list root "gpushare.httpProbe"). */}}
{{- define "gpushare.extenderProbes" -}}
{{- $root := index . 0 -}}
{{- $how := index . 1 -}}
startupProbe:
  {{- include $how (list $root "/healthz") | nindent 2 }}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  {{- include $how (list $root "/healthz") | nindent 2 }}
  periodSeconds: 20
  failureThreshold: 3
readinessProbe:
  {{- include $how (list $root "/readyz") | nindent 2 }}
  periodSeconds: 10
  failureThreshold: 2
{{- end -}}

{{- define "gpushare.httpProbe" -}}
httpGet: {path: {{ index . 1 }}, port: http}
timeoutSeconds: 5
{{- end -}}

{{/* Asked from inside: kubelet asks the pod's address, where nobody listens. */}}
{{- define "gpushare.localProbe" -}}
exec:
  command:
    - python3
    - -ISc
    - >-
      import http.client, sys;
      c = http.client.HTTPConnection('127.0.0.1', {{ (index . 0).Values.extender.port }}, timeout=4);
      c.request('GET', '{{ index . 1 }}');
      sys.exit(c.getresponse().status != 200)
timeoutSeconds: 5
{{- end -}}
